"""Queries, bodies and responses of the file routes of a runtime."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from django.conf import settings
from rest_framework import serializers

from common.errors import PayloadTooLarge
from common.fields import StrictBoolean
from common.openapi import Success
from workspaces.data_plane.fields import MAX_PATTERN, PathField, TextField
from workspaces.data_plane.files.services import MAX_DEPTH
from workspaces.runtime.query_fields import (
    ModeField,
    QueryBoolean,
    QueryInteger,
    QueryList,
    QueryPath,
    QueryPatterns,
    QueryText,
)

CONTENT_BYTES, MAX_CONTENT_BYTES = 1 << 20, 16 << 20
LAST_LINE = 1 << 53
ENCODED = "If the path is not UTF-8: its bytes, percent-encoded."
COMMAS = "Separated by commas."
KINDS = "`file`, `directory`, `symlink` or `other`."


class RuntimeListQuery(serializers.Serializer[Any]):
    path = QueryPath(required=False, help_text="A directory; by default the home of commands.")
    nested = QueryBoolean(default=False, help_text="A tree: folders have `children`.")
    flatten = QueryBoolean(default=False, help_text="One list of all that is below; it precedes `nested`.")
    light = QueryBoolean(default=False, help_text="Name, path and type alone.")
    include_hash = QueryBoolean(default=False, help_text="SHA-256 of regular files.")
    include_content = QueryBoolean(default=False, help_text="Texts of files, while `max_content_budget` lasts.")
    include_extensions = QueryBoolean(default=False)
    code_files_only = QueryBoolean(default=False, help_text="Of the files those of programs, by their names.")
    use_gitignore = QueryBoolean(
        default=False, help_text="Only files that git does not ignore, and directories that have such files."
    )
    max_depth = QueryInteger(
        min_value=1,
        max_value=MAX_DEPTH,
        required=False,
        help_text=f"By default {MAX_DEPTH} with `nested` or `flatten`, else 1.",
    )
    path_filter = QueryText(
        max_bytes=MAX_PATTERN,
        required=False,
        default="",
        help_text="Entries whose path contains this text, or matches it as a glob if it has `*` or `?`.",
    )
    include_ext = QueryList(
        QueryText(max_bytes=64),
        help_text=f"Of the files those with one of these extensions, as `py,ts`. {COMMAS}",
    )
    ignore_patterns = QueryPatterns(
        help_text=f"In the syntax of gitignore; directories that match are not entered. {COMMAS}"
    )
    max_content_budget = QueryInteger(
        min_value=0, max_value=MAX_CONTENT_BYTES, default=CONTENT_BYTES, help_text="Bytes of all contents together."
    )

    def validate_include_ext(self, value: list[str]) -> list[str]:
        return [extension.removeprefix(".").lower() for extension in value]


class RuntimeEntry(serializers.Serializer[Any]):
    """Documents what `entries.entry_bodies` makes."""

    name = serializers.CharField()
    path = serializers.CharField()
    type = serializers.CharField(help_text=KINDS)
    size = serializers.IntegerField(required=False)
    modified = serializers.DateTimeField(required=False)
    extension = serializers.CharField(required=False)
    content = serializers.CharField(required=False, help_text="A file that is whole, and UTF-8.")
    hash = serializers.CharField(required=False)
    target = serializers.CharField(required=False, help_text="The target of a symbolic link, as the link has it.")
    children = serializers.ListField(
        child=serializers.DictField(), required=False, help_text="With `nested`: the entries of a directory."
    )
    encodedPath = serializers.CharField(required=False, help_text=ENCODED)


class RuntimeListResponse(Success):
    path = serializers.CharField()
    entries = serializers.ListField(child=RuntimeEntry())
    count = serializers.IntegerField(help_text="Entries, those in `children` included.")
    truncated = serializers.BooleanField(help_text="Whether there are more entries than are shown.")
    encodedPath = serializers.CharField(required=False, help_text=ENCODED)


class RuntimeReadQuery(serializers.Serializer[Any]):
    path = QueryPath()
    start_line = QueryInteger(min_value=1, max_value=LAST_LINE, default=1, help_text="From 1.")
    end_line = QueryInteger(min_value=1, max_value=LAST_LINE, required=False, help_text="Included.")
    with_line_numbers = QueryBoolean(default=False, help_text="Each line begins with its number and a tab. Text only.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.get("end_line", LAST_LINE) < attrs["start_line"]:
            raise serializers.ValidationError({"end_line": "The end is before the start."})
        return attrs


class RuntimeReadResponse(Success):
    path = serializers.CharField()
    content = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes of the whole file.")
    lines = serializers.IntegerField(
        required=False, help_text="Of the whole file; absent if it was not read to its end."
    )
    extension = serializers.CharField(help_text="Without its dot; empty if the name has none.")
    start_line = serializers.IntegerField()
    end_line = serializers.IntegerField(help_text="The last line of the content; before the start if it is empty.")
    encoding = serializers.CharField(required=False, help_text="`base64`, only if the bytes are not UTF-8.")
    encodedPath = serializers.CharField(required=False, help_text=ENCODED)


class RuntimeWriteRequest(serializers.Serializer[Any]):
    path = PathField()
    content = TextField()
    create_dirs = StrictBoolean(default=False, help_text="Missing parents are created.")
    append = StrictBoolean(default=False, help_text="Write to the end of the file.")
    mode = ModeField(required=False, help_text="By default 0644, or that of the file that is replaced.")
    encoding = serializers.ChoiceField(["utf-8", "base64"], default="utf-8", help_text="The form of `content`.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        try:
            text: str = attrs["content"]
            data = base64.b64decode(text, validate=True) if attrs["encoding"] == "base64" else text.encode()
        except (binascii.Error, ValueError) as exc:
            raise serializers.ValidationError({"content": "Not valid base64."}) from exc
        if len(data) > settings.FILE_WRITE_LIMIT:
            raise PayloadTooLarge(f"A file of at most {settings.FILE_WRITE_LIMIT} bytes can be written.")
        return attrs | {"content": data}


class RuntimeWrittenResponse(Success):
    path = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes of the whole file.")
    encodedPath = serializers.CharField(required=False, help_text=ENCODED)


class RuntimeFolderRequest(serializers.Serializer[Any]):
    path = PathField()
    mode = ModeField(required=False, help_text="Of a new directory; by default 0755.")


class RuntimePathQuery(serializers.Serializer[Any]):
    path = QueryPath()


class RuntimeRemoveQuery(serializers.Serializer[Any]):
    """The other place of the path, which the document has in words: programs need but one."""

    path = QueryPath(required=False)


class RuntimeRemoveRequest(serializers.Serializer[Any]):
    path = PathField(required=False, help_text="Or in the query.")


class RuntimePathResponse(Success):
    path = serializers.CharField()
    encodedPath = serializers.CharField(required=False, help_text=ENCODED)


class RuntimeStatResponse(Success):
    path = serializers.CharField()
    name = serializers.CharField()
    type = serializers.CharField(help_text=KINDS)
    size = serializers.IntegerField()
    modified = serializers.DateTimeField()
    permissions = serializers.CharField(help_text="In octal, as `0644`.")
    is_code = serializers.BooleanField(help_text="Whether it is a file of a program, by its name.")
    extension = serializers.CharField(required=False)
    symlink_target = serializers.CharField(required=False, help_text="As the link has it.")
    encodedPath = serializers.CharField(required=False, help_text=ENCODED)
