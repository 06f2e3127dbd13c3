"""Requests and responses of the resource routes (specification, Resources, Filesystem)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.fields import StrictBoolean, StrictInteger
from common.openapi import Success
from common.responses import field_messages
from common.serializers import ResponseSerializer
from workspaces import errors
from workspaces.crud.config import MAX_DISK_MB, ResourceFields
from workspaces.models import Workspace
from workspaces.serializers import ResourcesObject
from workspaces.states import Status

COLUMNS = {"cpus": "cpu_millis", "memory_mb": "memory_mb", "disk_size_mb": "disk_size_mb"}


class ResourcesRequest(ResourceFields):
    """New sizes, at least one. `apply`: relaunch a running workspace now; otherwise they apply at the next start."""

    apply = StrictBoolean(default=False)


class OverlayResizeRequest(serializers.Serializer[Any]):
    size_mb = StrictInteger(min_value=1, max_value=MAX_DISK_MB, help_text="MiB; a disk cannot shrink.")


def wanted(body: dict[str, Any]) -> tuple[dict[str, int], bool]:
    """Return the columns that a request changes, and whether to apply them now. Raise NoResources, InvalidResources."""
    if not COLUMNS.keys() & body.keys():
        raise errors.NoResources
    checked = ResourcesRequest(data=body)
    if not checked.is_valid():
        details = field_messages(checked.errors)
        raise errors.InvalidResources(details=details)
    data = checked.validated_data
    changes = {column: data[field] for field, column in COLUMNS.items() if field in data}
    if "cpu_millis" in changes:
        changes["cpu_millis"] = round(changes["cpu_millis"] * 1000)
    return changes, data["apply"]


class CpuConfig(ResponseSerializer):
    quota = serializers.CharField(help_text="Share of one CPU's time, such as 150%.")

    def read_quota(self, row: Workspace) -> str:
        return f"{row.cpu_millis / 10:g}%"


class PendingResources(ResponseSerializer):
    cpus = serializers.FloatField(required=False)
    memory_mb = serializers.IntegerField(required=False)
    disk_size_mb = serializers.IntegerField(required=False)


# Reads a row with every column.
class SavedResources(ResourcesObject):
    """Saved sizes of a workspace."""

    cpu_config = CpuConfig(source="*")
    status = serializers.ChoiceField(Status.choices)
    pending = PendingResources(
        required=False, source="pending_resources", help_text="Saved sizes that apply at the next start."
    )


class ResourcesResponse(Success):
    resources = SavedResources()


class ResourcesUpdated(Success):
    accepted = serializers.BooleanField(required=False)
    updated = ResourcesObject()
    relaunched = serializers.BooleanField()


class OverlayResized(Success):
    accepted = serializers.BooleanField(required=False)
    size_mb = serializers.IntegerField()
    wasRunning = serializers.BooleanField()
    relaunched = serializers.BooleanField()
