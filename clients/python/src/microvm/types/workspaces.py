"""Workspaces, their creation and their power.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class CreateRequest(TypedDict):
    """Body, or a part of it, of `workspaces.create`."""

    name: NotRequired[str | None]
    slug: NotRequired[str | None]
    image: NotRequired[str | None]
    preset: NotRequired[str | None]
    namespace: NotRequired[str | None]
    snapshot: NotRequired[str | None]
    memory: NotRequired[bool | None]
    placement: NotRequired[Placement | None]
    mode: NotRequired[Literal["permanent", "temporary"]]
    config: NotRequired[Config]
    type: NotRequired[str | None]
    wait_ready: NotRequired[bool]
    ready_timeout_seconds: NotRequired[float]
    idempotency_key: NotRequired[str]


class Placement(TypedDict):
    """Body, or a part of it, of `workspaces.create`."""

    labels: NotRequired[dict[str, str] | None]
    spread: NotRequired[Literal["host", "zone"] | None]
    near: NotRequired[str | None]


class Config(TypedDict):
    """Body, or a part of it, of `workspaces.create`."""

    cpus: NotRequired[float]
    memory_mb: NotRequired[int]
    disk_size_mb: NotRequired[int]
    ttl: NotRequired[str | float | None]
    ttl_action: NotRequired[Literal["stop", "pause", "remove"]]
    remove_on_exit: NotRequired[bool]
    restart_policy: NotRequired[Literal["no", "always", "on-failure", "unless-stopped"]]
    max_restarts: NotRequired[int]
    keep_logs: NotRequired[bool]
    static_network: NotRequired[bool]
    network_config: NotRequired[NetworkConfig | None]
    ssh_access: NotRequired[bool]
    env: NotRequired[list[dict[str, Any] | str]]
    cmd: NotRequired[list[str] | str | None]
    workloads: NotRequired[list[WorkloadRequest]]
    wait_for_init: NotRequired[bool]
    proxy_assignment_id: NotRequired[int | None]
    desktop: NotRequired[Desktop | None]
    macos: NotRequired[dict[str, Any] | None]


class NetworkConfig(TypedDict):
    """Body, or a part of it, of `workspaces.create`."""

    allow_internet: NotRequired[bool]
    public_ingress: NotRequired[bool]


class WorkloadRequest(TypedDict):
    """Body, or a part of it, of `workspaces.create`."""

    name: str
    cmd: list[str]
    env: NotRequired[list[dict[str, Any] | str]]
    working_dir: NotRequired[str]
    user: NotRequired[str]
    restart_policy: NotRequired[Literal["never", "on-failure", "always"]]
    max_restarts: NotRequired[int]
    restart_delay: NotRequired[int]
    enabled: NotRequired[bool]
    log_path: NotRequired[str]


class Desktop(TypedDict):
    """Body, or a part of it, of `workspaces.create`."""

    enabled: NotRequired[bool]


class WorkspaceResponse(TypedDict):
    """Answer, or a part of one, of `workspaces.create`."""

    workspace: Workspace


class Workspace(TypedDict):
    """Answer, or a part of one, of `workspaces.create`."""

    id: str
    name: str
    slug: str | None
    namespace: str
    mode: str
    type: str
    image: str
    preset: str | None
    logo: str | None
    ip: str | None
    uptime: int
    start_time: str | None
    started_from: str
    source_snapshot_id: str | None
    status: str
    ready: bool
    host: str | None
    host_state: str | None
    host_since: str | None
    info: Info
    access: Access
    network: Network
    public_ports: list[PublicPort]
    resources: Resources
    image_logo: str | None
    image_color: str | None
    image_desktop: ImageDesktop | None
    image_capabilities: list[str]
    provisioning: Provisioning
    created_at: str
    updated_at: str


class Info(TypedDict):
    """Answer, or a part of one, of `workspaces.create`."""

    status: str
    is_running: bool
    user_requested_stop: bool
    health: str | None
    unresponsive_since: str | None
    error: Failure | None


class Failure(TypedDict):
    """Answer, or a part of one, of `workspaces.create`."""

    code: str
    message: str


class Access(TypedDict):
    """Answer, or a part of one, of `workspaces.create`."""

    ssh_enabled: bool


class Network(TypedDict):
    """Answer, or a part of one, of `workspaces.create`."""

    allow_internet: bool
    ingress_ports: list[int]
    egress_ports: list[int]
    egress: list[str]
    public_access: bool
    ingress: list[str]


class PublicPort(TypedDict):
    """Answer, or a part of one, of `workspaces.create`."""

    port: int
    hash: str
    domain: str
    label: str
    slug: str
    access: str
    url: str


class Resources(TypedDict):
    """Answer, or a part of one, of `workspaces.create`."""

    cpus: float
    memory_mb: int
    disk_size_mb: int


class ImageDesktop(TypedDict):
    """Answer, or a part of one, of `workspaces.create`."""

    installable: bool
    prepared: bool


class Provisioning(TypedDict):
    """Answer, or a part of one, of `workspaces.create`."""

    state: str
    phase: str
    progress: int
    message: str
    error: Failure | None
    attempts: int
    created_at: str
    updated_at: str
    completed_at: str | None


class ListResponse(TypedDict):
    """Answer, or a part of one, of `workspaces.list`."""

    workspaces: list[Workspace]
    total: int
    page: int
    limit: int


class DetailsResponse(TypedDict):
    """Answer, or a part of one, of `workspaces.details`."""

    workspace: Details
    token: str
    stats: dict[str, Any]
    ssh: dict[str, Any]
    api_access: dict[str, bool]
    lifecycle: dict[str, Any]
    config: dict[str, Any]


class Details(TypedDict):
    """Answer, or a part of one, of `workspaces.details`."""

    id: str
    name: str
    slug: str | None
    namespace: str
    mode: str
    type: str
    image: str
    preset: str | None
    logo: str | None
    ip: str | None
    uptime: int
    start_time: str | None
    started_from: str
    source_snapshot_id: str | None
    status: str
    ready: bool
    host: str | None
    host_state: str | None
    host_since: str | None
    info: Info
    access: Access
    network: Network
    public_ports: list[PublicPort]
    resources: Resources
    image_logo: str | None
    image_color: str | None
    image_desktop: ImageDesktop | None
    image_capabilities: list[str]
    provisioning: Provisioning
    created_at: str
    updated_at: str
    token: str
    stats: dict[str, Any]
    ssh: dict[str, Any]
    api_access: dict[str, bool]
    lifecycle: dict[str, Any]
    config: dict[str, Any]


class UpdateRequest(TypedDict):
    """Body, or a part of it, of `workspaces.update`."""

    name: NotRequired[str]
    slug: NotRequired[str | None]
    logo: NotRequired[str | None]
    config: NotRequired[dict[str, Any]]


class MessageResponse(TypedDict):
    """Answer, or a part of one, of `workspaces.delete`."""

    accepted: NotRequired[bool]
    message: str


class AcceptedResponse(TypedDict):
    """Answer, or a part of one, of `workspaces.retry`."""

    id: str
    ready: bool
    provisioning: Provisioning
    workspace: Workspace


class StartRequest(TypedDict):
    """Body, or a part of it, of `workspaces.start`."""

    force: NotRequired[bool]


class ReinstallResponse(TypedDict):
    """Answer, or a part of one, of `workspaces.reinstall`."""

    accepted: NotRequired[bool]
    workspace_id: str
    reinstalled: bool
    running: bool
    ip: str | None
    message: str


class ExecRequest(TypedDict):
    """Body, or a part of it, of `workspaces.exec`."""

    cmd: list[str] | str
    env: NotRequired[Any]
    working_dir: NotRequired[str]
    user: NotRequired[str]
    timeout_seconds: NotRequired[float]
    stdin: NotRequired[str]
    stdin_encoding: NotRequired[Literal["utf-8", "base64"]]
    encoding: NotRequired[Literal["utf-8", "base64"]]


class ExecResponse(TypedDict):
    """Answer, or a part of one, of `workspaces.exec`."""

    exit_code: int
    stdout: str
    stderr: str
    encoding: str
    lossy: bool
    duration_ms: int
    truncated: bool
    timed_out: bool
