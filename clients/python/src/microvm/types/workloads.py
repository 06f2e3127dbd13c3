"""Supervised programs of a workspace, read and changed while it runs.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class WorkloadsResponse(TypedDict):
    """Answer, or a part of one, of `workloads.list`."""

    workloads: list[Workload]


class Workload(TypedDict):
    """Answer, or a part of one, of `workloads.list`."""

    id: str
    name: str
    cmd: list[str] | None
    env: list[str]
    working_dir: str | None
    user: str | None
    restart_policy: str | None
    max_restarts: int | None
    restart_delay: int | None
    enabled: bool
    log_path: str | None
    saved: bool
    status: str
    pid: int | None
    exit_code: int | None
    restarts: int
    started_at: str | None


class WorkloadChangedResponse(TypedDict):
    """Answer, or a part of one, of `workloads.create`."""

    workload: Workload
    applied: bool
    problem: str | None


class WorkloadResponse(TypedDict):
    """Answer, or a part of one, of `workloads.get`."""

    workload: Workload


class PatchedWorkloadPatch(TypedDict):
    """Body, or a part of it, of `workloads.update`."""

    name: NotRequired[str]
    cmd: NotRequired[list[str]]
    env: NotRequired[list[dict[str, Any] | str] | None]
    working_dir: NotRequired[str | None]
    user: NotRequired[str | None]
    restart_policy: NotRequired[Literal["never", "on-failure", "always"]]
    max_restarts: NotRequired[int]
    restart_delay: NotRequired[int]
    enabled: NotRequired[bool]
    log_path: NotRequired[str | None]


class WorkloadPatch(TypedDict):
    """Body, or a part of it, of `workloads.put`."""

    name: NotRequired[str]
    cmd: NotRequired[list[str]]
    env: NotRequired[list[dict[str, Any] | str] | None]
    working_dir: NotRequired[str | None]
    user: NotRequired[str | None]
    restart_policy: NotRequired[Literal["never", "on-failure", "always"]]
    max_restarts: NotRequired[int]
    restart_delay: NotRequired[int]
    enabled: NotRequired[bool]
    log_path: NotRequired[str | None]


class WorkloadRemovedResponse(TypedDict):
    """Answer, or a part of one, of `workloads.delete`."""

    workload: Workload
    applied: bool
    problem: str | None
    message: str


class WorkloadsRemovedResponse(TypedDict):
    """Answer, or a part of one, of `workloads.delete_all`."""

    message: str
    removed: int
    applied: bool
    problem: str | None


class WorkloadStatsResponse(TypedDict):
    """Answer, or a part of one, of `workloads.stats`."""

    stats: WorkloadStats


class WorkloadStats(TypedDict):
    """Answer, or a part of one, of `workloads.stats`."""

    pid: int | None
    uptime: int
    cpu_percent: float
    memory_bytes: int
