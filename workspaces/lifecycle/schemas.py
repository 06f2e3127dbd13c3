"""Shapes of the lifecycle routes' responses for the OpenAPI document."""

from __future__ import annotations

from rest_framework import serializers as s

from workspaces.api.schemas import Success
from workspaces.models.workspace import Mode, RestartPolicy, TtlAction
from workspaces.states import Status


class RestartEntry(s.Serializer):
    at = s.DateTimeField()
    exit_code = s.IntegerField(allow_null=True)
    reason = s.CharField()


class RestartInfo(s.Serializer):
    count = s.IntegerField(help_text="Restarts of the policy in a row.")
    last_exit_code = s.IntegerField(allow_null=True)
    last_reason = s.CharField(allow_null=True)
    last_restart_at = s.DateTimeField(allow_null=True)
    history = RestartEntry(many=True, help_text="The last 20.")


class IdlePolicy(s.Serializer):
    suspend_after = s.IntegerField(help_text="Seconds without use; 0: it does not sleep.")
    stop_after = s.IntegerField(help_text="Seconds that a sleeping workspace's memory is kept; 0: for ever.")
    enabled = s.BooleanField()


class LifecycleObject(s.Serializer):
    mode = s.ChoiceField(Mode.choices)
    status = s.ChoiceField(Status.choices)
    restart_policy = s.ChoiceField(RestartPolicy.choices)
    max_restarts = s.IntegerField(help_text="0: no limit.")
    restart_info = RestartInfo()
    ttl = s.CharField(allow_null=True)
    ttl_action = s.ChoiceField(TtlAction.choices, allow_null=True)
    ttl_expires_at = s.DateTimeField(allow_null=True)
    remove_on_exit = s.BooleanField()
    uptime = s.IntegerField(help_text="Seconds since the last start.")
    idle = IdlePolicy()


class LifecycleResponse(Success, LifecycleObject):
    snapshot_supported = s.BooleanField(help_text="Whether its memory can be kept on disk.")
    snapshot_unavailable_reason = s.CharField(allow_null=True)


class IdleResponse(Success, IdlePolicy):
    idle = IdlePolicy()


class PingResponse(Success):
    ttl_expires_at = s.DateTimeField()
