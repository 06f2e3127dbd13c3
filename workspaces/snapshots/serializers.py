"""Bodies of the routes of snapshots, restores and forks."""

from __future__ import annotations

import unicodedata
from datetime import timedelta
from typing import Any

from django.utils import timezone
from rest_framework import serializers as s

from common.fields import Duration, JSONObject, StrictBoolean, StrictChar, StrictFloat, StrictInteger
from common.openapi import Success
from common.pagination import PageQuery
from common.serializers import ResponseSerializer, Timestamp
from vmbackend.copies import AfterSnapshot
from workspaces import metadata
from workspaces.fields import EnvField
from workspaces.models import Snapshot
from workspaces.models.snapshot import SnapshotStatus
from workspaces.models.workspace import Mode, TtlAction
from workspaces.serializers import Failure, ResourcesObject, WorkspaceObject
from workspaces.snapshots.forks import NewForks
from workspaces.snapshots.services import NewSnapshot

MAX_NAME, MAX_COUNT = 128, 16
NOT_COMPLETE = "It is not complete."


class NameField(StrictChar):
    """A name of 1 to 128 characters, none of which is a control character."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_NAME, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        if isinstance(data, str) and any(unicodedata.category(char) == "Cc" for char in data):
            raise s.ValidationError("A name has no control characters.")
        return super().to_internal_value(data)


class OptionalFields(s.Serializer[Any]):
    """Fields that may all be left out; null is the same as that."""

    def to_internal_value(self, data: dict[str, Any]) -> Any:
        return super().to_internal_value({name: value for name, value in data.items() if value is not None})


class WaitFields(OptionalFields):
    """Fields that control the response only."""

    wait_ready = StrictBoolean(default=True, allow_null=True)
    ready_timeout_seconds = StrictFloat(min_value=1, max_value=600, default=600, allow_null=True)
    idempotency_key = StrictChar(required=False, allow_null=True, max_length=255)


class SnapshotRequest(WaitFields):
    """The state to keep, and its name. Every field may be left out."""

    name = NameField(required=False, allow_null=True, help_text="Default: the workspace's name and the time.")
    after = s.ChoiceField(
        [after.value for after in AfterSnapshot],
        default=AfterSnapshot.RESUME.value,
        allow_null=True,
        help_text="The state of the workspace from the instant of the snapshot on; `resume`: as it was.",
    )
    memory = StrictBoolean(
        required=False, allow_null=True, help_text="Whether its memory is kept. Default: unless it is stopped."
    )
    ttl = Duration(required=False, allow_null=True, help_text="It is deleted then. Default: it is kept for ever.")


def new_snapshot(data: dict[str, Any]) -> NewSnapshot:
    """Return the service input for a validated request."""
    return NewSnapshot(data.get("name"), AfterSnapshot(data["after"]), data.get("memory"), data.get("ttl"))


class ChangeRequest(s.Serializer[Any]):
    """Changes of a snapshot. `ttl` counts from now; null: it is kept for ever."""

    name = NameField(required=False)
    ttl = Duration(required=False, allow_null=True)


def snapshot_changes(data: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that a validated change sets."""
    columns = {"name": data["name"]} if "name" in data else {}
    if "ttl" in data:
        seconds = data["ttl"]
        columns["expires_at"] = None if seconds is None else timezone.now() + timedelta(seconds=seconds)
    return columns


class RestoreRequest(OptionalFields):
    """The snapshot to go back to. Every field may be left out."""

    snapshot = StrictChar(
        required=False,
        allow_null=True,
        max_length=MAX_NAME,
        help_text="A snapshot of this workspace, by id or name. Default: the newest one that is `ready`.",
    )
    memory = StrictBoolean(
        required=False, allow_null=True, help_text="Default: as the snapshot has it; false: it boots from the disk."
    )


class ForkRequest(WaitFields):
    """The number and the settings of the copies. Every field may be left out."""

    count = StrictInteger(min_value=1, max_value=MAX_COUNT, default=1, allow_null=True)
    name = StrictChar(
        required=False, allow_null=True, max_length=255, help_text="With a number where several. Default: the parent's."
    )
    env = EnvField(
        default=dict, allow_null=True, help_text="Added to the parent's, for programs that are started afterwards."
    )
    memory = StrictBoolean(
        required=False, allow_null=True, help_text="Default: unless the parent is stopped; false: the copies boot."
    )
    mode = s.ChoiceField(Mode.choices, default=Mode.TEMPORARY.value, allow_null=True)
    ttl = Duration(required=False, allow_null=True)
    ttl_action = s.ChoiceField(TtlAction.choices, default=TtlAction.STOP.value, allow_null=True)
    metadata = JSONObject(required=False, allow_null=True)

    def validate_metadata(self, value: dict[str, Any]) -> dict[str, Any]:
        metadata.require_shallow(value)
        metadata.require_small(value)
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["mode"] == Mode.PERMANENT and attrs.get("ttl"):
            raise s.ValidationError({"ttl": ["A permanent workspace has no ttl."]})
        return attrs


def new_forks(data: dict[str, Any]) -> NewForks:
    """Return the service input for a validated request."""
    fields = {"mode": data["mode"], "ttl_action": data["ttl_action"], "env": data["env"]}
    fields |= {"ttl_seconds": data.get("ttl"), "metadata": data.get("metadata") or {}}
    return NewForks(data["count"], data.get("name") or None, data.get("memory"), fields=fields)


class SnapshotObject(ResponseSerializer):
    """A snapshot, made from a row of `snapshot_selectors`."""

    id = s.CharField()
    name = s.CharField()
    workspace_id = s.CharField(allow_null=True, help_text="Null: the workspace was deleted, and its snapshots kept.")
    namespace = s.CharField(source="namespace_slug")
    status = s.ChoiceField(SnapshotStatus.choices)
    error = Failure(allow_null=True, source="failure", help_text="Why it could not be made, or was lost.")
    memory = s.BooleanField()
    image = s.CharField()
    image_digest = s.CharField()
    resources = ResourcesObject(source="*")
    size_bytes = s.IntegerField(help_text="What it occupies on its host, fixed once it is ready.")
    host = s.CharField(source="host.name")
    usable = s.BooleanField(
        help_text="Whether its memory can be loaded on its host as that is now. The disk always can."
    )
    unusable_reason = s.CharField(allow_null=True)
    parent_id = s.CharField(allow_null=True, help_text="The snapshot that its workspace was made from.")
    dependants = s.IntegerField(help_text="How many workspaces were made from it.")
    created_at = Timestamp()
    last_used_at = Timestamp(allow_null=True)
    expires_at = Timestamp(allow_null=True)

    def read_usable(self, row: Snapshot) -> bool:
        return row.status == SnapshotStatus.READY and not row.differs

    def read_unusable_reason(self, row: Snapshot) -> str | None:
        if row.status != SnapshotStatus.READY:
            return NOT_COMPLETE
        found = [f"{each['what']}: {each['snapshot']} then, {each['host']} now" for each in row.differs]
        return f"The host has changed. {'; '.join(found)}." if found else None


class SnapshotResponse(Success):
    snapshot = SnapshotObject()


class SnapshotsResponse(Success):
    snapshots = SnapshotObject(many=True)
    total = s.IntegerField()
    page = s.IntegerField()
    limit = s.IntegerField()


class SnapshotPage(PageQuery):
    search = s.CharField(required=False, max_length=255)


class SnapshotQuery(SnapshotPage):
    namespace = s.CharField(required=False, max_length=128)
    workspace_id = s.CharField(required=False, max_length=128)
    status = s.ChoiceField(SnapshotStatus.choices, required=False)


class EntryError(ResponseSerializer):
    code = s.CharField()
    message = s.CharField()
    details = JSONObject(required=False)


class ForkEntry(ResponseSerializer):
    """One copy: the workspace, or why it was not made."""

    workspace = WorkspaceObject(required=False)
    error = EntryError(required=False)


class ForksResponse(Success):
    forks = ForkEntry(many=True)
