"""Bodies of the search routes of a sandbox."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import StrictBoolean, StrictInteger
from common.openapi import Success
from workspaces.data_plane.fields import ArgumentField, PathField, PatternField, PatternsField
from workspaces.data_plane.search.services import DEFAULT_RESULTS, MAX_RESULTS

MAX_QUERY = 10_000


class GlobField(PatternField):
    """A pattern of names that takes nothing back."""

    def to_internal_value(self, data: Any) -> str:
        pattern = super().to_internal_value(data)
        if pattern.startswith("!"):
            raise serializers.ValidationError("A pattern must not begin with `!`: use `include` or `exclude`.")
        return pattern


class GlobsField(PatternsField):
    child = GlobField()


class SearchOptions(serializers.Serializer[Any]):
    caseSensitive = StrictBoolean(default=False)
    maxResults = StrictInteger(min_value=1, max_value=MAX_RESULTS, default=DEFAULT_RESULTS)
    include = GlobsField(help_text="Globs in the syntax of gitignore: only files that match one of them.")
    exclude = GlobsField(
        help_text="Globs in the same syntax: files and directories that match one of them are left out."
    )
    regex = StrictBoolean(default=False, help_text="The query is a regular expression of Rust's `regex`.")


class SandboxSearchRequest(serializers.Serializer[Any]):
    query = ArgumentField(max_bytes=MAX_QUERY, allow_empty=False)
    path = PathField(default="/", help_text="A directory, or one file.")
    options = SearchOptions(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "options" not in attrs:
            attrs["options"] = SearchOptions().run_validation({})
        return attrs


class SandboxMatch(serializers.Serializer[Any]):
    """Documents what `views.matched` makes."""

    file = serializers.CharField(help_text="Absolute path.")
    line = serializers.IntegerField(help_text="From 1.")
    column = serializers.IntegerField(help_text="The place of the line's first match, in bytes, from 1.")
    text = serializers.CharField(help_text="The line, or its first 500 characters.")
    encodedFile = serializers.CharField(required=False, help_text="If the path is not UTF-8: its bytes, encoded.")


class Found(Success):
    total = serializers.IntegerField(help_text="The number of matches that are shown.")
    duration = serializers.IntegerField(help_text="Milliseconds.")
    truncated = serializers.BooleanField(
        help_text="Whether there may be more: matches beyond the limits, or in large files that need too much memory."
    )
    timedOut = serializers.BooleanField(help_text="Whether the search was ended for lack of time.")


class SandboxSearchResponse(Found):
    matches = serializers.ListField(child=SandboxMatch())


class SandboxNamesResponse(Found):
    files = serializers.ListField(child=serializers.CharField(), help_text="Absolute paths, by name.")
