"""Workloads of a running guest (`guest workloads`, src/workloads.c): until its next start.

Each is idempotent. Raises GuestUnreachable, GuestCommandInvalid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vmbackend.driver import Workload
from vmbackend.errors import GuestCommandInvalid

from .records import MAX_WORKLOADS, check_workload_name, workload_records
from .session import GuestSession

_MAX_OUTPUT = 16 * 1024
# NAME STATE PID EXIT RESTARTS STARTED; the numbers are a guest's, and may be any.
_LINE = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9_.-]{0,63}) (starting|running|restarting|exited|stopped)"
    r" ([0-9]{1,10}) (-1|[0-9]{1,3}) ([0-9]{1,10}) ([0-9]{1,11})"
)


# NAME PID ALIVE_MS CPU_MS BYTES
_USAGE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]{0,63}) (?P<pid>[0-9]{1,10})"
    r" (?P<alive>[0-9]{1,15}) (?P<cpu>[0-9]{1,15}) (?P<memory>[0-9]{1,15})"
)


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """As the guest says. `exit_code`: of its last end. `restarts`: since the machine's start or the last start by hand.
    `started_at`: seconds since the epoch, by the guest's clock.
    """

    name: str
    state: str  # starting, running, restarting, exited, stopped
    pid: int | None
    exit_code: int | None
    restarts: int
    started_at: float | None


async def list_workloads(session: GuestSession) -> list[WorkloadState]:
    """Return the guest's workloads by name; lines that are not the kit's are left out."""
    output = await session.kit_helper("workloads list", b"", _MAX_OUTPUT)
    matches = map(_LINE.fullmatch, output.decode("ascii", "replace").splitlines()[:MAX_WORKLOADS])
    return sorted((_state(*match.groups()) for match in matches if match), key=lambda each: each.name)


def _state(name: str, state: str, pid: str, code: str, restarts: str, started: str) -> WorkloadState:  # noqa: PLR0917
    exit_code = None if code == "-1" else int(code)
    return WorkloadState(name, state, int(pid) or None, exit_code, int(restarts), float(started) or None)


@dataclass(frozen=True, slots=True)
class WorkloadUsage:
    """The usage of the processes of a workload's session, as the guest says. `pid`: None if no process runs; the
    figures are 0 then. Milliseconds: `alive_ms` since its process started, `cpu_ms` of all CPUs together.
    """

    name: str
    pid: int | None
    alive_ms: int
    cpu_ms: int
    memory_bytes: int

    def cpu_percent(self, before: WorkloadUsage | None) -> float:
        """Return percent of one CPU, since another measurement of the same process; without one, since its start."""
        if before is None or before.pid != self.pid or before.alive_ms > self.alive_ms:
            return _percent(self.cpu_ms, self.alive_ms)
        return _percent(self.cpu_ms - before.cpu_ms, self.alive_ms - before.alive_ms)


def _percent(cpu_ms: int, milliseconds: int) -> float:
    """Return percent, never negative: the times of processes that no parent waited for are lost with them."""
    return round(max(cpu_ms, 0) * 100 / milliseconds, 1) if milliseconds > 0 else 0.0


async def measure_workloads(session: GuestSession) -> dict[str, WorkloadUsage]:
    """Return the usage of the guest's workloads by name. Raise GuestKitOutdated."""
    output = await session.kit_helper("workloads stats", b"", _MAX_OUTPUT)
    matches = map(_USAGE.fullmatch, output.decode("ascii", "replace").splitlines()[:MAX_WORKLOADS])
    return {found["name"]: _usage(found) for found in matches if found}


def _usage(found: re.Match[str]) -> WorkloadUsage:
    pid, *numbers = (int(found[name]) for name in ("pid", "alive", "cpu", "memory"))
    return WorkloadUsage(found["name"], pid or None, *numbers)


async def put_workload(session: GuestSession, workload: Workload) -> None:
    """Add a workload, or change the one of its name, which restarts then; one that is the same already goes on.

    A new one starts within some seconds. Raise GuestCommandInvalid if it does not end, or is too large.
    """
    await session.kit_helper(f"workloads put {_checked(workload.name)}", workload_records(workload))


async def remove_workload(session: GuestSession, name: str) -> None:
    """Remove a workload: SIGTERM to its processes, SIGKILL after 5 s; its log stays. Nothing happens if there is
    none.
    """
    await session.kit_helper(f"workloads remove {_checked(name)}", b"")


async def start_workload(session: GuestSession, name: str) -> None:
    """Start a workload that ended or was stopped; its restarts count from 0 again. Raise GuestCommandInvalid if there
    is none.
    """
    await session.kit_helper(f"workloads start {_checked(name)}", b"")


async def stop_workload(session: GuestSession, name: str) -> None:
    """Do what `remove_workload` does, but it may be started again. Raise GuestCommandInvalid: there is none."""
    await session.kit_helper(f"workloads stop {_checked(name)}", b"")


def _checked(name: str) -> str:
    try:
        return check_workload_name(name)
    except ValueError as error:
        raise GuestCommandInvalid(f"{error}") from error
