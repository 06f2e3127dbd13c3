"""Hosts, for staff: of a client whose token is one of staff (`stf_...`).

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class HostObjectList(TypedDict):
    """Answer, or a part of one, of `hosts.list`."""

    hosts: list[Host]
    total: int
    page: int
    limit: int


class Host(TypedDict):
    """Answer, or a part of one, of `hosts.list`."""

    id: str
    name: str
    roles: list[str]
    state: str
    state_since: str
    lease_until: str | None
    arch: str
    accelerated: bool
    cpu_model: str | None
    qemu: str | None
    libvirt: str | None
    kit: str | None
    version: str
    protocol: int
    zone: str
    labels: dict[str, str]
    subnet: str
    address: str | None
    network: str
    cpus: int
    load: float | None
    memory_mb: int
    memory_promised_mb: int
    disk_mb: int
    disk_free_mb: int
    disk_promised_mb: int
    machines: HostMachines
    snapshots_bytes: int
    problem: str | None
    clock_offset_seconds: float | None
    joined_at: str | None
    last_seen_at: str | None


class HostMachines(TypedDict):
    """Answer, or a part of one, of `hosts.list`."""

    running: int
    sleeping: int
    stopped: int


class HostResponse(TypedDict):
    """Answer, or a part of one, of `hosts.get`."""

    host: HostDetails


class HostDetails(TypedDict):
    """Answer, or a part of one, of `hosts.get`."""

    id: str
    name: str
    roles: list[str]
    state: str
    state_since: str
    lease_until: str | None
    arch: str
    accelerated: bool
    cpu_model: str | None
    qemu: str | None
    libvirt: str | None
    kit: str | None
    version: str
    protocol: int
    zone: str
    labels: dict[str, str]
    subnet: str
    address: str | None
    network: str
    cpus: int
    load: float | None
    memory_mb: int
    memory_promised_mb: int
    disk_mb: int
    disk_free_mb: int
    disk_promised_mb: int
    machines: HostMachines
    snapshots_bytes: int
    problem: str | None
    clock_offset_seconds: float | None
    joined_at: str | None
    last_seen_at: str | None
    images: list[str]
    orphans: list[HostOrphan]
    moves: list[Move]
    would: HostWould


class HostOrphan(TypedDict):
    """Answer, or a part of one, of `hosts.get`."""

    workspace_id: str
    epoch: int
    kept_since: float
    size_bytes: int


Move = TypedDict(
    "Move",
    {
        "id": "str",
        "workspace_id": "str",
        "state": "str",
        "step": "str",
        "from": "str",
        "to": "str",
        "bytes_total": "int",
        "bytes_done": "int",
        "standstill_seconds": "float | None",
        "error": "MoveError | None",
        "created_at": "str",
        "finished_at": "str | None",
    },
)


class MoveError(TypedDict):
    """Answer, or a part of one, of `hosts.get`."""

    code: str
    message: str
    differs: list[dict[str, Any]]


class HostWould(TypedDict):
    """Answer, or a part of one, of `hosts.get`."""

    moves: int
    fits_nowhere: list[dict[str, Any]]
    replicated: int
    lost: int


class PatchedChangeHostRequest(TypedDict):
    """Body, or a part of it, of `hosts.update`."""

    reason: NotRequired[str]
    name: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    zone: NotRequired[str]


class DrainHostRequest(TypedDict):
    """Body, or a part of it, of `hosts.drain`."""

    reason: str
    deadline_seconds: NotRequired[int]
    memory: NotRequired[Literal["keep", "drop"]]
    running: NotRequired[Literal["move", "wait"]]


class DrainResponse(TypedDict):
    """Answer, or a part of one, of `hosts.drain`."""

    host: HostDetails
    drain: Drain


class Drain(TypedDict):
    """Answer, or a part of one, of `hosts.drain`."""

    host: str
    state: str
    memory: str
    running: str
    deadline_at: str | None
    workspaces_left: int
    moves: int
    refusals: list[DrainRefusal]
    reason: str
    created_at: str
    ended_at: str | None


class DrainRefusal(TypedDict):
    """Answer, or a part of one, of `hosts.drain`."""

    workspace_id: str
    code: str
    message: str


class MoveWorkspaceRequest(TypedDict):
    """Body, or a part of it, of `hosts.move`."""

    to: NotRequired[str]
    memory: NotRequired[bool]
    address: NotRequired[Literal["new"]]
    reason: str


class MoveResponse(TypedDict):
    """Answer, or a part of one, of `hosts.move`."""

    operation: Move


class ReasonRequest(TypedDict):
    """Body, or a part of it, of `hosts.activate`."""

    reason: str


class GiveUpRequest(TypedDict):
    """Body, or a part of it, of `hosts.give_up`."""

    reason: str
    confirm: str


class NewTokenRequest(TypedDict):
    """Body, or a part of it, of `hosts.create_token`."""

    roles: NotRequired[list[Literal["host"]]]
    name: NotRequired[str]
    ttl_seconds: NotRequired[int]


class NewTokenResponse(TypedDict):
    """Answer, or a part of one, of `hosts.create_token`."""

    token: str
    command: str
    expires_at: str


class OrphansResponse(TypedDict):
    """Answer, or a part of one, of `hosts.orphans`."""

    orphans: list[KeptOrphan]


class KeptOrphan(TypedDict):
    """Answer, or a part of one, of `hosts.orphans`."""

    workspace_id: str
    epoch: int
    kept_since: float
    size_bytes: int
    name: str
    workspace_status: str | None
    workspace_epoch: int | None


class PutBackResponse(TypedDict):
    """Answer, or a part of one, of `hosts.put_back`."""

    workspace_id: str
    status: str
    host: str
    ip: str
    epoch: int


class RemovedOrphansResponse(TypedDict):
    """Answer, or a part of one, of `hosts.remove_orphans`."""

    removed: list[str]
