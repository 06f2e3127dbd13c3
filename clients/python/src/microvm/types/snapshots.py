"""Snapshots of workspaces, restores and forks.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from microvm.types.workspaces import Failure, Resources, Workspace


class SnapshotRequest(TypedDict):
    """Body, or a part of it, of `snapshots.create`."""

    wait_ready: NotRequired[bool | None]
    ready_timeout_seconds: NotRequired[float | None]
    idempotency_key: NotRequired[str | None]
    name: NotRequired[str | None]
    after: NotRequired[Literal["resume", "paused", "stop"] | None]
    memory: NotRequired[bool | None]
    ttl: NotRequired[str | float | None]


class SnapshotResponse(TypedDict):
    """Answer, or a part of one, of `snapshots.create`."""

    snapshot: Snapshot


class Snapshot(TypedDict):
    """Answer, or a part of one, of `snapshots.create`."""

    id: str
    name: str
    workspace_id: str | None
    namespace: str
    status: str
    error: Failure | None
    memory: bool
    image: str
    image_digest: str
    resources: Resources
    size_bytes: int
    host: str
    usable: bool
    unusable_reason: str | None
    parent_id: str | None
    dependants: int
    created_at: str
    last_used_at: str | None
    expires_at: str | None


class SnapshotsResponse(TypedDict):
    """Answer, or a part of one, of `snapshots.of_workspace`."""

    snapshots: list[Snapshot]
    total: int
    page: int
    limit: int


class RestoreRequest(TypedDict):
    """Body, or a part of it, of `snapshots.restore`."""

    snapshot: NotRequired[str | None]
    memory: NotRequired[bool | None]


class ForkRequest(TypedDict):
    """Body, or a part of it, of `snapshots.fork`."""

    wait_ready: NotRequired[bool | None]
    ready_timeout_seconds: NotRequired[float | None]
    idempotency_key: NotRequired[str | None]
    count: NotRequired[int | None]
    name: NotRequired[str | None]
    env: NotRequired[list[dict[str, Any] | str] | None]
    memory: NotRequired[bool | None]
    mode: NotRequired[Literal["permanent", "temporary"] | None]
    ttl: NotRequired[str | float | None]
    ttl_action: NotRequired[Literal["stop", "pause", "remove"] | None]
    metadata: NotRequired[dict[str, Any] | None]


class ForksResponse(TypedDict):
    """Answer, or a part of one, of `snapshots.fork`."""

    forks: list[ForkEntry]


class ForkEntry(TypedDict):
    """Answer, or a part of one, of `snapshots.fork`."""

    workspace: NotRequired[Workspace]
    error: NotRequired[EntryError]


class EntryError(TypedDict):
    """Answer, or a part of one, of `snapshots.fork`."""

    code: str
    message: str
    details: NotRequired[dict[str, Any]]


class PatchedChangeRequest(TypedDict):
    """Body, or a part of it, of `snapshots.update`."""

    name: NotRequired[str]
    ttl: NotRequired[str | float | None]
