"""Requests and responses of watchers."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.openapi import Success
from common.serializers import ResponseSerializer
from workspaces.data_plane.fields import PathField, PatternsField


class WatcherRequest(serializers.Serializer[Any]):
    """A folder; both of its fields have two names."""

    path = PathField(required=False)
    root = PathField(required=False, help_text="Another name of `path`.")  # type: ignore[assignment]  # a field of DRF, too
    excludes = PatternsField(
        help_text="Patterns in the syntax of gitignore, relative to the folder. What they name is not watched."
    )
    exclude = PatternsField(help_text="Another name of `excludes`.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        given = [attrs[name] for name in ("path", "root") if name in attrs]
        if len(given) != 1:
            raise serializers.ValidationError({"path": "Name the folder once, by `path` or by `root`."})
        if attrs["excludes"] and attrs["exclude"]:
            raise serializers.ValidationError({"excludes": "Give `excludes` or `exclude`, not both."})
        return {"folder": given[0], "patterns": attrs["excludes"] or attrs["exclude"]}


class WatcherObject(ResponseSerializer):
    """A watcher."""

    id = serializers.CharField(help_text="Digits; not that of another watcher of this machine.")
    root = serializers.CharField()  # type: ignore[assignment]
    dir_count = serializers.IntegerField(help_text="Folders that were watched when it began.")
    excludes = serializers.ListField(child=serializers.CharField())
    active = serializers.BooleanField(help_text="False once the folder is gone; the watcher is forgotten soon after.")


class WatcherResponse(Success):
    watcher = WatcherObject()


class WatchersResponse(Success):
    watchers = WatcherObject(many=True)


class WatcherRemovedResponse(Success):
    watcher_id = serializers.CharField()
