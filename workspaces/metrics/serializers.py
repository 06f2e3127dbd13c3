"""Responses of the metrics routes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rest_framework import serializers

from common.openapi import Success
from common.serializers import BlankAsNull, ResponseSerializer, Timestamp
from workspaces.models import Workspace
from workspaces.serializers import Failure, NetworkObject, ResourcesObject
from workspaces.settings_serializers import ConfigObject, OpenObject
from workspaces.states import Status


class StatsObject(ResponseSerializer):
    cpuUsage = serializers.FloatField(help_text="Percent of the CPUs that it has.")
    memoryUsage = serializers.FloatField(help_text="Percent of the memory that it has.")
    memoryUsedMB = serializers.FloatField()
    memoryTotalMB = serializers.FloatField()
    guestMemoryUsed = serializers.IntegerField(help_text="Bytes, as reported by the guest.")
    guestMemoryTotal = serializers.IntegerField(help_text="Bytes, as reported by the guest.")
    guestDiskUsed = serializers.IntegerField(help_text="Bytes of the writable disk, as reported by the guest.")
    guestDiskTotal = serializers.IntegerField(help_text="Bytes of the writable disk, as reported by the guest.")
    networkIn = serializers.CharField(help_text="Received since the last start, human-readable.")
    networkOut = serializers.CharField(help_text="Sent since the last start, human-readable.")
    networkInBytes = serializers.IntegerField()
    networkOutBytes = serializers.IntegerField()
    uptime = serializers.IntegerField(help_text="Seconds since the last start.")
    apiCalls = serializers.IntegerField(help_text="API calls to this workspace.")


class StatsResponse(Success):
    stats = StatsObject()


class Counters(ResponseSerializer):
    # The host writes it as text.
    at = serializers.DateTimeField()
    cpu_time_ns = serializers.IntegerField()
    disk_read_bytes = serializers.IntegerField()
    disk_write_bytes = serializers.IntegerField()
    net_rx_bytes = serializers.IntegerField()
    net_tx_bytes = serializers.IntegerField()
    memory_used_bytes = serializers.IntegerField(allow_null=True)
    memory_total_bytes = serializers.IntegerField(allow_null=True)


@dataclass(frozen=True, slots=True)
class MachineReport:
    """A row with every column, and its host's report on the machine."""

    workspace: Workspace
    state: str
    machine: dict[str, Any] | None
    counters: dict[str, Any] | None


class MachineInfo(ResponseSerializer):
    """Machine of a workspace, as its host reports it (`MachineReport`)."""

    id = serializers.CharField(source="workspace.pk")
    status = serializers.ChoiceField(Status.choices, source="workspace.status")
    state = serializers.ChoiceField(
        ["absent", "off", "running", "paused", "asleep"], help_text="As reported by the hypervisor."
    )
    ready = serializers.BooleanField(source="workspace.ready")
    ip = serializers.CharField(allow_null=True, source="workspace.ip")
    host = serializers.CharField(allow_null=True)
    image = serializers.CharField(source="workspace.image")
    image_digest = BlankAsNull(source="workspace.image_digest")
    start_time = Timestamp(allow_null=True)
    uptime = serializers.IntegerField()
    resources = ResourcesObject(source="workspace.applied", help_text="The sizes applied to the machine.")
    error = Failure(allow_null=True, source="workspace.failure")
    machine = serializers.DictField(allow_null=True, help_text="The definition of the machine on its host.")
    counters = Counters(allow_null=True, help_text="Counters of the machine's process since its start.")

    def read_host(self, report: MachineReport) -> str | None:
        host = report.workspace.host
        return host.name if host is not None else None

    def read_start_time(self, report: MachineReport) -> datetime | None:
        return report.workspace.started_at if report.workspace.is_running else None

    def read_uptime(self, report: MachineReport) -> int:
        return report.workspace.uptime()


class InfoResponse(Success):
    info = MachineInfo()


class ConfigHead(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    status = serializers.ChoiceField(Status.choices)
    mode = serializers.CharField()
    ip = serializers.CharField(allow_null=True)
    network = NetworkObject(source="*")


class MachineConfig(ConfigHead, ConfigObject):
    """The config of the details, with the identity and network of the workspace."""


class ConfigResponse(Success):
    config = OpenObject(
        MachineConfig,
        source="workspace",
        help_text="The saved configuration; the environment without its values.",
    )
