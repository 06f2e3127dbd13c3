"""Queries, bodies and responses of archives of a runtime."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import BoundedList
from workspaces.data_plane.fields import PathField, PatternsField

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
