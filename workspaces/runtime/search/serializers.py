"""Queries and responses of the search routes of a runtime."""

from __future__ import annotations

import re
from typing import Any

from rest_framework import serializers

from common.openapi import Success
from workspaces.data_plane.fields import ArgumentField
from workspaces.runtime.query_fields import QueryBoolean, QueryInteger, QueryList, QueryPath, QueryPatterns

MAX_QUERY = 10_000
DEFAULT_RESULTS, MAX_RESULTS = 100, 1000
DEFAULT_SECONDS, MAX_SECONDS = 10, 60
MAX_CONTEXT = 10
_EXTENSION = re.compile(r"\.?(\w[\w+-]{0,63})", re.ASCII)


class ExtensionField(ArgumentField):
    """An extension of file names, with or without its dot."""

    def to_internal_value(self, data: Any) -> str:
        match = _EXTENSION.fullmatch(super().to_internal_value(data))
        if match is None:
            raise serializers.ValidationError("An extension has letters, digits and `_+-`.")
        return match[1]


class ExcludedField(QueryPatterns):
    """Patterns that take nothing back."""

    def to_internal_value(self, data: Any) -> list[str]:
        patterns: list[str] = super().to_internal_value(data)
        if any(pattern.startswith("!") for pattern in patterns):
            raise serializers.ValidationError("A pattern must not begin with `!`.")
        return patterns


class RuntimeNamesQuery(serializers.Serializer[Any]):
    q = ArgumentField(max_bytes=MAX_QUERY, allow_empty=False)
    path = QueryPath(required=False, help_text="A directory, or one file; by default the home of commands.")
    case_sensitive = QueryBoolean(default=False)
    include_hidden = QueryBoolean(default=False, help_text="Names that begin with a dot, too.")
    max_results = QueryInteger(min_value=1, max_value=MAX_RESULTS, default=DEFAULT_RESULTS)
    ignore_patterns = ExcludedField(
        help_text="In the syntax of gitignore: files and directories that are left out. Separated by commas."
    )


class RuntimeSearchQuery(RuntimeNamesQuery):
    regex = QueryBoolean(default=False, help_text="The query is a regular expression of Rust's `regex`.")
    whole_word = QueryBoolean(default=False)
    timeout = QueryInteger(min_value=1, max_value=MAX_SECONDS, default=DEFAULT_SECONDS, help_text="Seconds.")
    context_lines = QueryInteger(
        min_value=0, max_value=MAX_CONTEXT, default=0, help_text="Lines before and after each match."
    )
    file_types = QueryList(ExtensionField(), help_text="Extensions, as `py,ts`. Separated by commas.")
    no_gitignore = QueryBoolean(default=False, help_text="Files that git ignores, too.")


class RuntimeMatch(serializers.Serializer[Any]):
    """Documents what `views.matched` makes."""

    line = serializers.IntegerField(help_text="From 1.")
    column = serializers.IntegerField(help_text="The place of the line's first match, in bytes, from 1.")
    text = serializers.CharField(help_text="The line, or its first 500 characters.")
    before = serializers.ListField(child=serializers.CharField(), required=False)
    after = serializers.ListField(child=serializers.CharField(), required=False)


class RuntimeFound(Success):
    query = serializers.CharField()
    path = serializers.CharField()
    total_files = serializers.IntegerField()
    capped = serializers.BooleanField(
        help_text="Whether there may be more: beyond the limit or the timeout, or in files that need too much memory."
    )


class RuntimeSearchResponse(RuntimeFound):
    results = serializers.DictField(
        child=serializers.ListField(child=RuntimeMatch()), help_text="Matches by absolute path."
    )
    total_matches = serializers.IntegerField(help_text="Of those that are shown, as `total_files`.")


class RuntimeNamesResponse(RuntimeFound):
    files = serializers.ListField(child=serializers.CharField(), help_text="Absolute paths, by name.")


class RuntimeSearchProgram(Success):
    installed = serializers.BooleanField(help_text="Whether the machine has the program in its memory.")
    path = serializers.CharField(allow_null=True)
    version = serializers.CharField(allow_null=True)
