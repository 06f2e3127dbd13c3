"""Sandboxes at the level of the account; `open` reaches into one.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from microvm.types.snapshots import EntryError
from microvm.types.workspaces import Config, Failure, Placement


class CreateSandboxRequest(TypedDict):
    """Body, or a part of it, of `sandboxes.create`."""

    name: str
    image: NotRequired[str | None]
    template: NotRequired[str | None]
    namespace: NotRequired[str | None]
    snapshot: NotRequired[str | None]
    memory: NotRequired[bool | None]
    placement: NotRequired[Placement | None]
    config: NotRequired[Config]
    autoStart: NotRequired[bool]
    wait_ready: NotRequired[bool]
    ready_timeout_seconds: NotRequired[float]
    idempotency_key: NotRequired[str]


class NewSandboxResponse(TypedDict):
    """Answer, or a part of one, of `sandboxes.create`."""

    sandbox: NewSandbox


class NewSandbox(TypedDict):
    """Answer, or a part of one, of `sandboxes.create`."""

    id: str
    name: str
    url: str
    status: str
    namespace: str
    image: str
    workspace_id: str
    workspace_status: str
    host: str | None
    host_state: str | None
    host_since: str | None
    error: Failure | None
    created_at: str
    token: str | None


class SandboxesResponse(TypedDict):
    """Answer, or a part of one, of `sandboxes.list`."""

    sandboxes: list[Sandbox]
    total: int
    page: int
    limit: int


class Sandbox(TypedDict):
    """Answer, or a part of one, of `sandboxes.list`."""

    id: str
    name: str
    url: str
    status: str
    namespace: str
    image: str
    workspace_id: str
    workspace_status: str
    host: str | None
    host_state: str | None
    host_since: str | None
    error: Failure | None
    created_at: str


class SandboxResponse(TypedDict):
    """Answer, or a part of one, of `sandboxes.get`."""

    sandbox: Sandbox


class SandboxTokenResponse(TypedDict):
    """Answer, or a part of one, of `sandboxes.regenerate_token`."""

    token: str
    sandbox: SandboxId


class SandboxId(TypedDict):
    """Answer, or a part of one, of `sandboxes.regenerate_token`."""

    id: str


class SandboxMetricsResponse(TypedDict):
    """Answer, or a part of one, of `sandboxes.metrics`."""

    metrics: SandboxMetrics


class SandboxMetrics(TypedDict):
    """Answer, or a part of one, of `sandboxes.metrics`."""

    cpu_usage: float
    memory_usage: float
    disk_usage: float
    uptime: int


class SandboxForksResponse(TypedDict):
    """Answer, or a part of one, of `sandboxes.fork`."""

    forks: list[SandboxForkEntry]


class SandboxForkEntry(TypedDict):
    """Answer, or a part of one, of `sandboxes.fork`."""

    sandbox: NotRequired[NewSandbox]
    error: NotRequired[EntryError]
