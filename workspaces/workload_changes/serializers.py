"""Requests and responses of the routes of workloads, and the item of a config."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers

from common.fields import BoundedList, StrictBoolean, StrictChar, StrictInteger
from common.openapi import Success
from common.serializers import ResponseSerializer, Timestamp
from vmbackend.driver import WorkloadRestart
from vmbackend.guest import records
from workspaces.fields import CMD_ITEMS, EnvField
from workspaces.workload_changes.selectors import WorkloadFound
from workspaces.workloads import workload

WORKLOAD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
STATES = ("starting", "running", "restarting", "exited", "stopped")


class WorkloadRequest(serializers.Serializer[Any]):
    """A supervised program beside the main one. `log_path` is absolute; without it the platform stores the log."""

    name = StrictChar(max_length=64, help_text="Letters, digits, `_`, `.` and `-`; not `cmd`, the main program's.")
    cmd = BoundedList(child=StrictChar(trim_whitespace=False, allow_blank=True), min_length=1, max_length=CMD_ITEMS)
    env = EnvField(required=False)
    working_dir = StrictChar(required=False, max_length=4096)
    user = StrictChar(required=False, max_length=64)
    restart_policy = serializers.ChoiceField([policy.value for policy in WorkloadRestart], default="always")
    max_restarts = StrictInteger(min_value=0, max_value=1_000_000, default=0)
    restart_delay = StrictInteger(min_value=0, max_value=3600, default=1, help_text="Seconds.")
    enabled = StrictBoolean(default=True)
    log_path = StrictChar(required=False, max_length=4096)

    def validate_name(self, value: str) -> str:
        if not WORKLOAD_NAME.fullmatch(value):
            raise serializers.ValidationError("It begins with a letter or digit; `_`, `.` and `-` may follow.")
        return value

    def validate_log_path(self, value: str) -> str:
        if not value.startswith("/"):
            raise serializers.ValidationError("Give an absolute path.")
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse, by the machine's own rules, the workloads that a machine would refuse."""
        try:
            records.workload_pairs([workload(attrs)])
        except ValueError as exc:
            raise serializers.ValidationError(str(exc)) from exc
        return attrs


class WorkloadPatch(serializers.Serializer[Any]):
    """Changes of a workload. A field that is left out stays; null removes an optional field. The name cannot change."""

    name = StrictChar(max_length=64, required=False)
    cmd = BoundedList(
        child=StrictChar(trim_whitespace=False, allow_blank=True), min_length=1, max_length=CMD_ITEMS, required=False
    )
    env = EnvField(required=False, allow_null=True)
    working_dir = StrictChar(required=False, max_length=4096, allow_null=True)
    user = StrictChar(required=False, max_length=64, allow_null=True)
    restart_policy = serializers.ChoiceField([policy.value for policy in WorkloadRestart], required=False)
    max_restarts = StrictInteger(min_value=0, max_value=1_000_000, required=False)
    restart_delay = StrictInteger(min_value=0, max_value=3600, required=False, help_text="Seconds.")
    enabled = StrictBoolean(required=False)
    log_path = StrictChar(required=False, max_length=4096, allow_null=True)


class WorkloadObject(ResponseSerializer):
    """A workload (`WorkloadFound`). The guest reports the numbers and times of processes."""

    id = serializers.CharField(source="name", help_text="Its name.")
    name = serializers.CharField()
    cmd = serializers.ListField(child=serializers.CharField(), allow_null=True)
    env = serializers.ListField(child=serializers.CharField(), help_text="Names; values are never shown.")
    working_dir = serializers.CharField(allow_null=True)
    user = serializers.CharField(allow_null=True)
    restart_policy = serializers.CharField(allow_null=True, help_text="`never`, `on-failure` or `always`.")
    max_restarts = serializers.IntegerField(allow_null=True)
    restart_delay = serializers.IntegerField(allow_null=True)
    enabled = serializers.BooleanField()
    log_path = serializers.CharField(allow_null=True)
    saved = serializers.BooleanField(help_text="Whether the workspace's next start has it, too.")
    status = serializers.ChoiceField(STATES)
    pid = serializers.IntegerField(allow_null=True)
    exit_code = serializers.IntegerField(allow_null=True, help_text="Exit code of the last run; 128 + N: by signal N.")
    restarts = serializers.IntegerField(help_text="Since the machine's start, or since it was started by hand.")
    started_at = Timestamp(allow_null=True)

    def read_cmd(self, found: WorkloadFound) -> list[str] | None:
        return found.item.get("cmd")

    def read_env(self, found: WorkloadFound) -> list[str]:
        return sorted(found.item.get("env") or {})

    def read_working_dir(self, found: WorkloadFound) -> str | None:
        return found.item.get("working_dir")

    def read_user(self, found: WorkloadFound) -> str | None:
        return found.item.get("user")

    def read_restart_policy(self, found: WorkloadFound) -> str | None:
        return found.item.get("restart_policy")

    def read_max_restarts(self, found: WorkloadFound) -> int | None:
        return found.item.get("max_restarts")

    def read_restart_delay(self, found: WorkloadFound) -> int | None:
        return found.item.get("restart_delay")

    def read_enabled(self, found: WorkloadFound) -> bool:
        return bool(found.item.get("enabled", True))

    def read_log_path(self, found: WorkloadFound) -> str | None:
        return found.item.get("log_path")

    def read_saved(self, found: WorkloadFound) -> bool:
        return bool(found.item)

    def read_status(self, found: WorkloadFound) -> str:
        return found.state.state if found.state else "stopped"

    def read_pid(self, found: WorkloadFound) -> int | None:
        return found.state.pid if found.state else None

    def read_exit_code(self, found: WorkloadFound) -> int | None:
        return found.state.exit_code if found.state else None

    def read_restarts(self, found: WorkloadFound) -> int:
        return found.state.restarts if found.state else 0

    def read_started_at(self, found: WorkloadFound) -> datetime | None:
        started = found.state.started_at if found.state else None
        return None if started is None else datetime.fromtimestamp(started, UTC)


class WorkloadStats(ResponseSerializer):
    """Usage of the processes of a workload's session: its program, and all that the program started there. Zeros if the
    workload does not run.
    """

    pid = serializers.IntegerField(allow_null=True)
    uptime = serializers.IntegerField(help_text="Seconds since its process started.")
    cpu_percent = serializers.FloatField(help_text="Percent of one CPU: 200 is two CPUs, fully used.")
    memory_bytes = serializers.IntegerField(help_text="Resident memory; shared memory counts for each process.")


class WorkloadStatsResponse(Success):
    stats = WorkloadStats()


class WorkloadsResponse(Success):
    workloads = WorkloadObject(many=True)


class WorkloadResponse(Success):
    workload = WorkloadObject()


class WorkloadChangedResponse(Success):
    workload = WorkloadObject()
    applied = serializers.BooleanField(help_text="Whether the running guest has it; otherwise it applies later.")
    problem = serializers.CharField(allow_null=True, help_text="Why the guest does not have it yet.")


class WorkloadRemovedResponse(WorkloadChangedResponse):
    message = serializers.CharField()


class WorkloadsRemovedResponse(Success):
    message = serializers.CharField()
    removed = serializers.IntegerField()
    applied = serializers.BooleanField(
        help_text="Whether all have ended in the running guest; otherwise they end later."
    )
    problem = serializers.CharField(allow_null=True, help_text="Why some have not ended yet.")


def checked_workload(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as it is saved, checked as a whole. Raise serializers.ValidationError."""
    env = [{"key": key, "value": value} for key, value in (item.get("env") or {}).items()]
    checked = WorkloadRequest(data={**item, "env": env} if env else item)
    checked.is_valid(raise_exception=True)
    return dict(checked.validated_data)
