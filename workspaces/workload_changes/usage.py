"""Present usage of the processes of workloads, as their guest reports it."""

from __future__ import annotations

import asyncio
from typing import Any

from accounts.actors import Actor
from vmbackend.guest.session import GuestAddress, GuestSession
from vmbackend.guest.workloads import WorkloadUsage, measure_workloads
from workspaces.errors import WorkloadNotFound
from workspaces.guests import address_of, call_guest
from workspaces.requested import requested_workspace
from workspaces.states import Status

SAMPLE_SECONDS = 0.5
CALL_SECONDS = 10.0
MILLISECONDS = 1000


def stats_of_usage(usage: WorkloadUsage | None, before: WorkloadUsage | None) -> dict[str, Any]:
    """Return the stats object of a workload; zeros if it does not run. `before`: measured a moment ago."""
    if usage is None or usage.pid is None:
        return {"pid": None, "uptime": 0, "cpu_percent": 0.0, "memory_bytes": 0}
    return {
        "pid": usage.pid,
        "uptime": usage.alive_ms // MILLISECONDS,
        "cpu_percent": usage.cpu_percent(before),
        "memory_bytes": usage.memory_bytes,
    }


async def workload_stats(place: GuestAddress | None, name: str, *, is_saved: bool) -> dict[str, Any]:
    """Measure what a workload uses. Raise WorkloadNotFound, GuestKitOutdated, GuestUnreachable."""
    before, now = await call_guest(place, _measure_twice, CALL_SECONDS) if place else ({}, {})
    if name not in now and not is_saved:
        raise WorkloadNotFound
    return stats_of_usage(now.get(name), before.get(name))


async def _measure_twice(session: GuestSession) -> tuple[dict[str, WorkloadUsage], dict[str, WorkloadUsage]]:
    before = await measure_workloads(session)
    await asyncio.sleep(SAMPLE_SECONDS)
    return before, await measure_workloads(session)


def find_place(actor: Actor, workspace_id: str, name: str) -> tuple[GuestAddress | None, bool]:
    """Return the guest to ask (None if the workspace does not run), and whether a workload of this name is saved."""
    workspace = requested_workspace(actor, workspace_id, whole=True)
    is_saved = any(item["name"] == name for item in workspace.workloads)
    return address_of(workspace) if workspace.status == Status.RUNNING else None, is_saved
