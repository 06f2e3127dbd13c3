"""Queries, bodies and responses of archives of a runtime."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import BoundedList
from common.openapi import Success
from workspaces.data_plane.fields import PathField, PatternsField
from workspaces.runtime.query_fields import QueryPath

MAX_PATHS = 100


class PlainPathField(PathField):
    """A path whose name in an archive is clear: without `..`."""

    def to_internal_value(self, data: Any) -> str:
        path = super().to_internal_value(data)
        if ".." in path.split("/"):
            raise serializers.ValidationError("A path without `..` is required.")
        return path


class PlainPathsField(BoundedList):
    child = PlainPathField()


class RuntimeDownloadRequest(serializers.Serializer[Any]):
    paths = PlainPathsField(min_length=1, max_length=MAX_PATHS, help_text="Files, symbolic links, directories.")
    exclude_patterns = PatternsField(
        help_text="In the syntax of gitignore, below each directory of `paths`; what matches is not entered."
    )


class RuntimeUploadQuery(serializers.Serializer[Any]):
    dest = QueryPath(default="/", help_text="The directory to unpack in; it is made if there is none.")


class RuntimeUploadResponse(Success):
    dest = serializers.CharField()
    files_extracted = serializers.IntegerField(help_text="Files and links; directories are not counted.")
    skipped = serializers.IntegerField(help_text="Entries that were left out.")
