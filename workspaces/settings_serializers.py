"""Response objects of a workspace's settings: its lifecycle and its config (specification, Details object)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from common.durations import format_duration
from common.serializers import BlankAsNull, ResponseSerializer, Timestamp
from workspaces.models import Workspace
from workspaces.models.workspace import Mode, RestartPolicy, TtlAction
from workspaces.states import Status


class RestartEntry(ResponseSerializer):
    # It is stored as text.
    at = s.DateTimeField()
    exit_code = s.IntegerField(allow_null=True)
    reason = s.CharField()


class RestartInfo(ResponseSerializer):
    count = s.IntegerField(source="restart_count", help_text="Consecutive restarts by the restart policy.")
    last_exit_code = s.IntegerField(allow_null=True)
    last_reason = BlankAsNull(source="last_exit_reason")
    last_restart_at = Timestamp(allow_null=True)
    history = RestartEntry(many=True, source="restart_history", help_text="The last 20.")


class IdlePolicy(ResponseSerializer):
    suspend_after = s.IntegerField(help_text="Seconds without use before it sleeps; 0: never.")
    stop_after = s.IntegerField(help_text="Seconds for which the memory of a sleeping workspace is kept; 0: no limit.")
    enabled = s.BooleanField(source="sleeps_when_idle")


# Reads a row with every column.
class LifecycleObject(ResponseSerializer):
    """Lifetime, restart policy and idle policy of a workspace."""

    mode = s.ChoiceField(Mode.choices)
    status = s.ChoiceField(Status.choices)
    restart_policy = s.ChoiceField(RestartPolicy.choices)
    max_restarts = s.IntegerField(help_text="0: no limit.")
    restart_info = RestartInfo(source="*")
    ttl = s.CharField(allow_null=True)
    ttl_action = s.ChoiceField(TtlAction.choices, allow_null=True)
    ttl_expires_at = Timestamp(allow_null=True)
    remove_on_exit = s.BooleanField()
    uptime = s.IntegerField(help_text="Seconds since the last start.")
    idle = IdlePolicy(source="*")

    def read_ttl(self, row: Workspace) -> str | None:
        return format_duration(row.ttl_seconds) if row.mode == Mode.TEMPORARY and row.ttl_seconds else None

    def read_ttl_action(self, row: Workspace) -> str | None:
        return row.ttl_action if row.mode == Mode.TEMPORARY else None

    def read_uptime(self, row: Workspace) -> int:
        return row.uptime()


class ShownNetworkConfig(ResponseSerializer):
    allow_internet = s.BooleanField()
    public_ingress = s.BooleanField(source="public_access")


class ShownDesktop(ResponseSerializer):
    enabled = s.BooleanField(source="desktop_enabled")


# Reads a row with every column.
class ConfigObject(ResponseSerializer):
    """Settings from which the machine is made."""

    image = s.CharField()
    image_digest = BlankAsNull()
    preset = BlankAsNull()
    cpus = s.FloatField()
    memory_mb = s.IntegerField()
    disk_size_mb = s.IntegerField()
    ttl = s.IntegerField(source="ttl_seconds", allow_null=True)
    ttl_action = s.ChoiceField(TtlAction.choices)
    remove_on_exit = s.BooleanField()
    restart_policy = s.ChoiceField(RestartPolicy.choices)
    max_restarts = s.IntegerField()
    keep_logs = s.BooleanField()
    static_network = s.BooleanField()
    network_config = ShownNetworkConfig(source="*")
    ssh_access = s.BooleanField(source="ssh_enabled")
    env = s.ListField()
    cmd = s.ListField(allow_null=True)
    workloads = s.ListField()
    wait_for_init = s.BooleanField()
    desktop = ShownDesktop(source="*")
    proxy_assignment_id = s.IntegerField(allow_null=True)

    # Values of environments are secrets: only their names are shown.
    def read_env(self, row: Workspace) -> list[dict[str, str]]:
        return [{"key": key, "value": "***"} for key in sorted(row.env)]

    def read_workloads(self, row: Workspace) -> list[dict[str, Any]]:
        return [{**item, "env": sorted(item.get("env") or {})} for item in row.workloads]


class OpenObject(s.DictField):
    """An object of a given shape, which the OpenAPI document does not spell out."""

    def __init__(self, shape: type[s.Serializer[Any]], **kwargs: Any) -> None:
        self.shape = shape
        super().__init__(**kwargs)

    def to_representation(self, value: Any) -> dict[str, Any]:
        return self.shape(value).data
