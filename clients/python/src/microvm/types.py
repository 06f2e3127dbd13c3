"""Shapes of answers. Fields that the service adds later are in the dictionaries as well."""

from __future__ import annotations

from typing import Any, TypedDict


class Workspace(TypedDict, total=False):
    """A workspace (specification, Workspace object). `uptime` in seconds, times in ISO 8601."""

    id: str
    name: str
    slug: str | None
    namespace: str
    mode: str
    image: str
    ip: str | None
    status: str
    ready: bool
    uptime: float
    info: dict[str, Any]
    resources: dict[str, Any]
    provisioning: dict[str, Any]
    created_at: str
    updated_at: str


class ExecResult(TypedDict, total=False):
    """The end of a command; `truncated` where its output was longer than the service keeps."""

    exit_code: int
    stdout: str
    stderr: str
    duration_ms: float
    truncated: bool


class Namespace(TypedDict, total=False):
    """A namespace (specification, Namespace object)."""

    id: str
    name: str
    slug: str
    status: str
    type: str
    is_default: bool
    metadata: dict[str, Any]
    tags: list[str]
    resource_limits: dict[str, Any]
