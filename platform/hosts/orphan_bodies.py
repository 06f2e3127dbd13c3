"""Bodies of the routes of kept orphans (wire contract, section 11)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from common.fields import StrictChar
from common.openapi import Success
from hosts.serializers import HostOrphan, ReasonRequest
from workspaces.states import Status


class KeptOrphanObject(HostOrphan):
    """Files of a machine that is not the host's any more. `workspace_status`: null if the workspace is deleted.

    `size_bytes` counts files that it shares with others.
    """

    name = s.CharField(help_text="Of the folder on the host.")
    workspace_status = s.ChoiceField(choices=Status.values, allow_null=True)
    workspace_epoch = s.IntegerField(allow_null=True, help_text="Of what the workspace has now.")


class OrphansResponse(Success):
    orphans = KeptOrphanObject(many=True)


class RemoveOrphanRequest(ReasonRequest):
    name = StrictChar(max_length=80, required=False, help_text="That one; default: all of the workspace.")


class PutBackResponse(Success):
    workspace_id = s.CharField()
    status = s.ChoiceField(choices=[Status.STOPPED.value])
    host = s.CharField(help_text="Its name.")
    ip = s.CharField()
    epoch = s.IntegerField()


class RemovedOrphansResponse(Success):
    removed = s.ListField(child=s.CharField(), help_text="Names of the orphans.")


def orphan_objects(orphans: list[dict[str, Any]], rows: dict[str, tuple[str, int]]) -> list[dict[str, Any]]:
    """Return orphans as they are shown, the oldest first. `rows`: status and epoch of the workspaces that there are."""
    return [
        {
            **{name: orphan[name] for name in ("name", "epoch", "kept_since", "size_bytes")},
            "workspace_id": orphan["machine_id"],
            "workspace_status": rows.get(orphan["machine_id"], (None, None))[0],
            "workspace_epoch": rows.get(orphan["machine_id"], (None, None))[1],
        }
        for orphan in orphans
    ]
