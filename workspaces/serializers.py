"""Response objects that several resources share (specification, Workspace object)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import prefetch_related_objects
from rest_framework import serializers as s

from common.openapi import Success
from common.serializers import BlankAsNull, ResponseSerializer, Timestamp
from edge.addresses import label, public_address
from vmbackend.host_states import SHOWN_STATES
from workspaces.images.catalog_snapshots import logo_url
from workspaces.models import PublicPort, Workspace
from workspaces.models.public_port import Access
from workspaces.states import Provisioning, ProvisioningPhase, Status


class ImageDesktop(ResponseSerializer):
    installable = s.BooleanField()
    prepared = s.BooleanField()


class Failure(ResponseSerializer):
    code = s.CharField()
    message = s.CharField()


class ProvisioningObject(ResponseSerializer):
    state = s.ChoiceField(Provisioning.choices, source="provisioning_state")
    phase = s.ChoiceField(ProvisioningPhase.choices, source="provisioning_phase")
    progress = s.IntegerField(min_value=0, max_value=100, source="provisioning_progress")
    message = s.CharField(source="provisioning_message")
    error = Failure(allow_null=True, source="provisioning_failure")
    attempts = s.IntegerField(source="provisioning_attempts")
    created_at = Timestamp()
    updated_at = Timestamp(source="provisioning_updated_at")
    completed_at = Timestamp(allow_null=True, source="provisioning_completed_at")


class InfoObject(ResponseSerializer):
    status = s.ChoiceField(Status.choices)
    is_running = s.BooleanField()
    user_requested_stop = s.BooleanField()
    health = s.ChoiceField(
        ["ok", "unresponsive"],
        allow_null=True,
        help_text="`unresponsive`: the services of the running guest have not answered for a minute. Null if it "
        "does not run.",
    )
    unresponsive_since = Timestamp(allow_null=True)
    error = Failure(allow_null=True, source="failure", help_text="Why the last operation failed, if it did.")

    def read_health(self, row: Workspace) -> str | None:
        if row.status != Status.RUNNING:
            return None
        return "unresponsive" if row.unresponsive_since else "ok"


class AccessObject(ResponseSerializer):
    ssh_enabled = s.BooleanField()


class NetworkObject(ResponseSerializer):
    allow_internet = s.BooleanField()
    ingress_ports = s.ListField(child=s.IntegerField())
    egress_ports = s.ListField(child=s.IntegerField())
    egress = s.ListField(child=s.CharField())
    public_access = s.BooleanField()
    ingress = s.ListField(child=s.CharField())


class PublicPortObject(ResponseSerializer):
    class Meta:
        ref_name = "PublicPort"

    port = s.IntegerField()
    hash = s.CharField()
    domain = s.CharField()
    label = s.CharField()  # type: ignore[assignment]  # the specification's name
    slug = s.CharField()
    access = s.ChoiceField(Access.choices, help_text="private: visitors need a link.")
    url = s.CharField()

    def read_domain(self, port: PublicPort) -> str:
        return public_address(settings.PUBLIC_URL).domain(label(port.slug, port.hash))


class ResourcesObject(ResponseSerializer):
    cpus = s.FloatField()
    memory_mb = s.IntegerField()
    disk_size_mb = s.IntegerField(help_text="MiB")


# Reads a row of `selectors`. For a list, call `load_ports` first.
class WorkspaceObject(ResponseSerializer):
    """A workspace."""

    id = s.CharField()
    name = s.CharField()
    slug = s.CharField(allow_null=True)
    namespace = s.CharField(source="namespace_slug")
    mode = s.CharField()
    type = s.CharField()
    image = s.CharField()
    preset = BlankAsNull()
    logo = s.CharField(allow_null=True)
    ip = s.CharField(allow_null=True)
    uptime = s.IntegerField(help_text="Seconds since the last start.")
    start_time = Timestamp(allow_null=True)
    started_from = s.CharField(
        help_text="How its present process began: boot, template, pool, snapshot, fork or memory."
    )
    source_snapshot_id = s.CharField(
        allow_null=True, help_text="The snapshot that its disk was made from, also once that is deleted."
    )
    status = s.ChoiceField(Status.choices)
    ready = s.BooleanField(source="is_ready", help_text="False while its host cannot be reached.")
    host = s.CharField(allow_null=True, source="shown_host.name", help_text="The name of its host.")
    host_state = s.ChoiceField(
        SHOWN_STATES,
        allow_null=True,
        source="shown_host.state",
        help_text="While it is `unreachable`, `status` is what was last known.",
    )
    host_since = Timestamp(allow_null=True, source="shown_host.since", help_text="Since when it is in that state.")
    info = InfoObject(source="*")
    access = AccessObject(source="*")
    network = NetworkObject(source="*")
    public_ports = PublicPortObject(many=True, source="published")
    resources = ResourcesObject(source="*")
    image_logo = s.CharField(allow_null=True)
    image_color = s.CharField(allow_null=True)
    image_desktop = ImageDesktop(allow_null=True)
    image_capabilities = s.ListField(child=s.CharField())
    provisioning = ProvisioningObject(source="*")
    created_at = Timestamp()
    updated_at = Timestamp()

    def read_uptime(self, row: Workspace) -> int:
        return row.uptime()

    def read_start_time(self, row: Workspace) -> datetime | None:
        return row.started_at if row.is_running else None

    def read_image_logo(self, row: Workspace) -> str | None:
        return logo_url(row.catalog_snapshot["logo"]) if row.catalog_snapshot else None

    def read_image_color(self, row: Workspace) -> str | None:
        return (row.catalog_snapshot["color"] or None) if row.catalog_snapshot else None

    def read_image_desktop(self, row: Workspace) -> dict[str, Any] | None:
        desktop = row.catalog_snapshot["desktop"] if row.catalog_snapshot else None
        return {"prepared": False, **desktop} if desktop is not None else None

    def read_image_capabilities(self, row: Workspace) -> list[str]:
        return row.catalog_snapshot["capabilities"] if row.catalog_snapshot else []


class WorkspaceResponse(Success):
    workspace = WorkspaceObject()


class GoingOnResponse(Success):
    accepted = s.BooleanField(help_text="The operation continues; reads show its progress.")
    workspace = WorkspaceObject()


def load_ports(rows: Iterable[Workspace]) -> None:
    """Read the public ports of all rows that have any, by one query."""
    prefetch_related_objects([row for row in rows if row.published_ports], "public_ports")
