"""Requests and responses of the lifecycle routes (specification, Lifecycle and power; Limits)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from common.durations import MAX_SECONDS
from common.fields import Duration, StrictBoolean, StrictInteger
from common.openapi import Success
from common.serializers import Timestamp
from workspaces.lifecycle import services
from workspaces.models import Workspace
from workspaces.models.workspace import RestartPolicy, TtlAction
from workspaces.settings_serializers import IdlePolicy, LifecycleObject

MIN_SUSPEND_AFTER_SECONDS = 120
MIN_STOP_AFTER_SECONDS = 3600
NO_POLICY = "A temporary workspace has no restart policy; leave the field out."


class Span(Duration):
    """A duration that is 0 (switched off) or at least `least` seconds."""

    def __init__(self, *, least: int, **kwargs: Any) -> None:
        self.least = least
        super().__init__(min_seconds=0, **kwargs)

    def to_internal_value(self, data: Any) -> int:
        seconds = super().to_internal_value(data)
        # Half a second must not be rounded to 0.
        if 0 < seconds < self.least or (isinstance(data, float) and data != seconds):
            raise serializers.ValidationError(f"Give 0, or at least {self.least} whole seconds.")
        return seconds


class IdleRequest(serializers.Serializer[Any]):
    """Idle policy; fields that are left out stay unchanged."""

    suspend_after = Span(least=MIN_SUSPEND_AFTER_SECONDS, required=False)
    stop_after = Span(least=MIN_STOP_AFTER_SECONDS, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise serializers.ValidationError({"suspend_after": ["Give suspend_after, stop_after or both."]})
        return attrs


class PermanentRequest(serializers.Serializer[Any]):
    restart_policy = serializers.ChoiceField(RestartPolicy.choices, default=RestartPolicy.ALWAYS.value)


class WithoutPolicy(serializers.Serializer[Any]):
    """Request for a temporary workspace: `restart_policy` is refused, whatever its value."""

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "restart_policy" in self.initial_data:
            raise serializers.ValidationError({"restart_policy": [NO_POLICY]})
        return attrs


class TemporaryRequest(WithoutPolicy):
    ttl = Duration()
    ttl_action = serializers.ChoiceField(TtlAction.choices, default=TtlAction.STOP.value)
    remove_on_exit = StrictBoolean(default=False)


class TtlRequest(WithoutPolicy):
    ttl = Duration(required=False)
    ttl_action = serializers.ChoiceField(TtlAction.choices, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        super().validate(attrs)
        if not attrs:
            raise serializers.ValidationError({"ttl": ["Give ttl, ttl_action or both."]})
        return attrs


class PingRequest(serializers.Serializer[Any]):
    ttl_seconds = StrictInteger(required=False, allow_null=True, min_value=1, max_value=MAX_SECONDS)


class LifecycleResponse(Success, LifecycleObject):
    snapshot_supported = serializers.BooleanField(help_text="Whether its memory can be saved to disk.")
    snapshot_unavailable_reason = serializers.CharField(allow_null=True)
    accepted = serializers.BooleanField(required=False, help_text="With 202: the host is away.")

    def read_snapshot_supported(self, row: Workspace) -> bool:
        return services.snapshot_problem(row) is None

    def read_snapshot_unavailable_reason(self, row: Workspace) -> str | None:
        return services.snapshot_problem(row)


class IdleEnvelope(Success):
    idle = IdlePolicy(source="*")


class IdleResponse(IdleEnvelope, IdlePolicy):
    """Idle policy in `idle`, and once more beside it."""

    accepted = serializers.BooleanField(required=False, help_text="With 202: the host is away.")


class PingResponse(Success):
    ttl_expires_at = Timestamp()
