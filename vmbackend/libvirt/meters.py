"""Metering of machines by one masked libvirt call over cached handles; disk usage by the guest's agent.

Calls that concern every domain (lists, statistics of all) wait for each domain that is being saved or stopped, for
seconds at times. This call names exactly the given machines. It may be made by several threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import libvirt

from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, GuestUnreachable, InvalidMachineState, MachineNotFound
from vmbackend.guest.commands import KitPaths
from vmbackend.libvirt import agent
from vmbackend.libvirt.connection import LibvirtConnection
from vmbackend.libvirt.domain import Domains, state_of, translate_errors
from vmbackend.libvirt.record import MachineDir
from vmbackend.samples import GuestDisk, Sample

_WHAT = (
    libvirt.VIR_DOMAIN_STATS_STATE
    | libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
    | libvirt.VIR_DOMAIN_STATS_BALLOON
    | libvirt.VIR_DOMAIN_STATS_INTERFACE
    | libvirt.VIR_DOMAIN_STATS_BLOCK
)
# Statistics that would wait for another job of the domain are omitted.
_HOW = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
_HAS_PROCESS = {
    libvirt.VIR_DOMAIN_RUNNING,
    libvirt.VIR_DOMAIN_BLOCKED,
    libvirt.VIR_DOMAIN_PAUSED,
    libvirt.VIR_DOMAIN_PMSUSPENDED,
    libvirt.VIR_DOMAIN_SHUTDOWN,
}
_SPARE_HANDLES = 1000
_ANSWER_SECONDS = 3.0
_BLOCKED_MAX = 16  # threads with calls for several machines
_DATA_MOUNT = KitPaths().data


class Meters:
    """Meters of one instance's machines. `files` returns a machine's directory."""

    def __init__(self, connection: LibvirtConnection, domains: Domains, files: Callable[[str], MachineDir]) -> None:
        self._libvirt = connection
        self._domains = domains
        self._files = files
        self._handles: dict[str, Any] = {}
        self._connection: Any = None  # the connection of these handles
        # Calls that have not returned, and the machines they were for.
        self._blocked: list[tuple[Future[Any], frozenset[str]]] = []

    def samples(self, machine_ids: Collection[str]) -> dict[str, Sample]:
        """Return what `Metered.samples` returns."""
        wanted = self._without_blocked(machine_ids)
        if machine_ids and not wanted:
            raise BackendUnavailable("A machine does not answer.")
        handles = self._handles_of(wanted)
        if not handles:
            return {}
        before = {machine_id: self._generation(machine_id) for machine_id in handles}
        answers = self._query(handles)
        now = time.time()
        found = {}
        for handle, stats in answers:
            machine_id = self._domains.machine_id(handle)
            if machine_id not in before or not _is_complete(stats):
                continue
            # Between two processes the counters may be those of either.
            if self._generation(machine_id) == before[machine_id]:
                found[machine_id] = _sample(now, before[machine_id], stats)
        return found

    def _without_blocked(self, machine_ids: Collection[str]) -> list[str]:
        """Return the machines without those whose own call has not returned: another one would only wait beside it."""
        blocked = {next(iter(ids)) for call, ids in self._blocked if len(ids) == 1 and not call.done()}
        return [machine_id for machine_id in machine_ids if machine_id not in blocked]

    def _query(self, handles: Mapping[str, Any]) -> Any:
        """Return the statistics of these machines.

        A process that does not answer (it is stopped, its disk hangs) blocks the call for as long. The call is then
        left to its thread, and later ones omit that machine, as it has a job.
        """
        self._blocked = [blocked for blocked in self._blocked if not blocked[0].done()]
        # There is at most one call for each single machine.
        if sum(len(ids) > 1 for _, ids in self._blocked) >= _BLOCKED_MAX:
            raise BackendUnavailable("Too many machines do not answer.")
        call: Future[Any] = Future()
        arguments = (call, self._libvirt.connection, list(handles.values()))
        threading.Thread(target=_answer, args=arguments, name="samples", daemon=True).start()
        try:
            with translate_errors("measure"):
                return call.result(_ANSWER_SECONDS)
        except TimeoutError:
            self._blocked.append((call, frozenset(handles)))
            raise BackendUnavailable("A machine does not answer.") from None

    def guest_disk(self, machine_id: str, timeout: float) -> GuestDisk:
        """Return what `Metered.guest_disk` returns."""
        target = self._domains.find(self._libvirt.connection, machine_id)
        if state_of(target) is not MachineState.RUNNING:
            raise InvalidMachineState("The machine is not running.")
        record = self._files(machine_id).read_record()
        if record is None:
            raise MachineNotFound("The machine's files are not on this host.")
        mounts = agent.send_command(target, "guest-get-fsinfo", timeout)
        return _data_disk(mounts, record.disk_mb << 20)

    def _handles_of(self, machine_ids: Collection[str]) -> dict[str, Any]:
        """Return handles, looked up once per machine and connection. A handle stays valid even if its machine is
        removed.
        """
        connection = self._libvirt.connection
        if connection is not self._connection:
            self._connection, self._handles = connection, {}
        known, found = self._handles, {}
        for machine_id in machine_ids:
            handle = known.get(machine_id) or self._domains.find_or_none(connection, machine_id)
            if handle is not None:
                found[machine_id] = handle
        known.update(found)
        if len(known) > _SPARE_HANDLES + 2 * len(found):
            self._handles = found  # most of the others are of deleted machines
        return found

    def _generation(self, machine_id: str) -> str:
        """Return what identifies the process: its agent's socket, which each process creates and never changes."""
        try:
            made = self._files(machine_id).agent_socket.stat()
        except OSError:
            return ""
        return f"{made.st_ino:x}.{made.st_mtime_ns:x}"


def _answer(call: Future[Any], connection: Any, handles: list[Any]) -> None:
    try:
        call.set_result(connection.domainListGetStats(handles, _WHAT, _HOW))
    except Exception as error:  # raised to the caller
        call.set_exception(error)


def _is_complete(stats: Mapping[str, Any]) -> bool:
    """Return whether these are all counters of a process. libvirt also returns a CPU time for a machine that is off,
    and its disks without their counters while it has a job; taken for zero, they would count twice.
    """
    disks = range(int(stats.get("block.count", 0)))
    counted = all(f"block.{number}.rd.bytes" in stats or f"block.{number}.wr.bytes" in stats for number in disks)
    return "cpu.time" in stats and stats.get("state.state") in _HAS_PROCESS and counted


def _sample(now: float, generation: str, stats: Mapping[str, Any]) -> Sample:
    used, total = _memory(stats)
    return Sample(
        at=now,
        generation=generation,
        cpu_time_ns=int(stats["cpu.time"]),
        disk_read_bytes=_total(stats, "block", "rd.bytes"),
        disk_write_bytes=_total(stats, "block", "wr.bytes"),
        net_rx_bytes=_total(stats, "net", "rx.bytes"),
        net_tx_bytes=_total(stats, "net", "tx.bytes"),
        memory_used_bytes=used,
        memory_total_bytes=total,
    )


def _total(stats: Mapping[str, Any], kind: str, what: str) -> int:
    return sum(int(stats.get(f"{kind}.{number}.{what}", 0)) for number in range(int(stats.get(f"{kind}.count", 0))))


def _memory(stats: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return used and total bytes as the guest's balloon driver reports (in KiB), limited to the machine's memory."""
    if "balloon.available" not in stats or "balloon.maximum" not in stats:
        return None, None
    total = max(0, min(int(stats["balloon.available"]), int(stats["balloon.maximum"])))
    free = stats.get("balloon.usable", stats.get("balloon.unused"))
    if free is None:
        return None, None
    return max(0, total - max(0, int(free))) * 1024, total * 1024


def _data_disk(mounts: object, size: int) -> GuestDisk:
    """Return usage from the agent's list of file systems. Raise GuestUnreachable if the list is invalid."""
    for mount in mounts if isinstance(mounts, Iterable) else ():
        if isinstance(mount, Mapping) and mount.get("mountpoint") == _DATA_MOUNT:
            used, total = mount.get("used-bytes"), mount.get("total-bytes")
            if isinstance(used, int) and isinstance(total, int):
                total = max(0, min(total, size))
                return GuestDisk(used_bytes=max(0, min(used, total)), total_bytes=total)
    raise GuestUnreachable("The machine's agent does not report its disk.")
