"""TTL, restarts and sleep of a workspace.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class LifecycleResponse(TypedDict):
    """Answer, or a part of one, of `lifecycle.get`."""

    mode: str
    status: str
    restart_policy: str
    max_restarts: int
    restart_info: RestartInfo
    ttl: str | None
    ttl_action: str | None
    ttl_expires_at: str | None
    remove_on_exit: bool
    uptime: int
    idle: IdlePolicy
    snapshot_supported: bool
    snapshot_unavailable_reason: str | None
    accepted: NotRequired[bool]


class RestartInfo(TypedDict):
    """Answer, or a part of one, of `lifecycle.get`."""

    count: int
    last_exit_code: int | None
    last_reason: str | None
    last_restart_at: str | None
    history: list[RestartEntry]


class RestartEntry(TypedDict):
    """Answer, or a part of one, of `lifecycle.get`."""

    at: str
    exit_code: int | None
    reason: str


class IdlePolicy(TypedDict):
    """Answer, or a part of one, of `lifecycle.get`."""

    suspend_after: int
    stop_after: int
    enabled: bool


class IdleRequest(TypedDict):
    """Body, or a part of it, of `lifecycle.set_idle`."""

    suspend_after: NotRequired[str | float]
    stop_after: NotRequired[str | float]


class IdleResponse(TypedDict):
    """Answer, or a part of one, of `lifecycle.set_idle`."""

    idle: IdlePolicy
    suspend_after: int
    stop_after: int
    enabled: bool
    accepted: NotRequired[bool]


class PermanentRequest(TypedDict):
    """Body, or a part of it, of `lifecycle.make_permanent`."""

    restart_policy: NotRequired[Literal["no", "always", "on-failure", "unless-stopped"]]


class TemporaryRequest(TypedDict):
    """Body, or a part of it, of `lifecycle.make_temporary`."""

    ttl: str | float
    ttl_action: NotRequired[Literal["stop", "pause", "remove"]]
    remove_on_exit: NotRequired[bool]


class TtlRequest(TypedDict):
    """Body, or a part of it, of `lifecycle.set_ttl`."""

    ttl: NotRequired[str | float]
    ttl_action: NotRequired[Literal["stop", "pause", "remove"]]


class PingRequest(TypedDict):
    """Body, or a part of it, of `lifecycle.ping`."""

    ttl_seconds: NotRequired[int | None]


class PingResponse(TypedDict):
    """Answer, or a part of one, of `lifecycle.ping`."""

    ttl_expires_at: str
