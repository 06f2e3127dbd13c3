"""Limits of a machine's process: memory, processes, its share of CPU and disk, the size of the files it writes.

They are applied while its CPUs are stopped, before they run for the first time or again, and they last as long as the
process. Weights are set by libvirt, the others in the machine's group itself: libvirt has no setting for the number of
processes (with cgroup v1 not even a group), and would save a limit of memory with the memory, from which a host without
CAP_SYS_RESOURCE could not restore it (libvirt raises the limit of locked memory first).

A limit that the host's control groups do not support is logged once for each machine, and `make doctor` shows it;
machines run without it.

The size of files is limited by the kernel (RLIMIT_FSIZE), on every host: libvirt has no setting for it. A process that
was taken over, which ignores its monitor's commands, cannot make its disk larger than that either.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt import disks
from vmbackend.libvirt.confinement import processes_of
from vmbackend.libvirt.disks import overlay_overhead_mb
from vmbackend.libvirt.domain import name_for
from vmbackend.libvirt.domainxml import TRANSLATION_CACHE_MB, vcpus_for
from vmbackend.libvirt.process import run_tool
from vmbackend.libvirt.record import MachineDir, Record
from vmbackend.libvirt.settings import LibvirtSettings

log = logging.getLogger(__name__)

CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
# The memory that a process needs besides its guest's memory and translated code; docs/decisions/machines.md has the
# measurements.
_OVERHEAD_MB, _OVERHEAD_VCPU_MB = 256, 8
# QEMU's own threads and at most 64 for disk requests; the virtual CPUs come on top.
_THREADS = 128


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """The limits of one machine. Weights are relative to those of other machines, by the number of CPUs."""

    memory_mb: int
    file_mb: int
    pids: int
    cpu_weight: int
    io_weight: int


def limits_for(cpus: float, memory_mb: int, disk_mb: int, *, emulated: bool) -> MachineLimits:
    """Return the limits of a machine of this size. Its largest file is its disk or its saved memory."""
    vcpus = vcpus_for(cpus)
    overhead = _OVERHEAD_MB + _OVERHEAD_VCPU_MB * vcpus + (TRANSLATION_CACHE_MB if emulated else 0)
    return MachineLimits(
        memory_mb=memory_mb + overhead,
        file_mb=max(disk_mb + overlay_overhead_mb(disk_mb), memory_mb + overhead),
        pids=_THREADS + vcpus,
        cpu_weight=_between(2, int(cpus * (100 if is_unified() else 1024)), 10_000),
        io_weight=_between(100, int(cpus * 100), 1000),
    )


class Limits:
    """Applies limits to one instance's machines."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self._uids = settings.uids
        self._instance = settings.instance
        self._machines_dir = settings.machines_dir
        self._missing: set[tuple[str, str]] = set()  # machine id, limit

    def apply(self, target: Any, record: Record, *, emulated: bool) -> None:
        """Limit the process of a machine whose CPUs are stopped.

        Raise BackendUnavailable if the size of its files could not be limited.
        """
        # A disk without a record, of a first preparation that died, may be larger than what was asked for next.
        disk = max(record.disk_mb, disks.disk_size_mb(MachineDir(self._machines_dir, record.id).top_disk()))
        limits = limits_for(record.cpus, record.memory_mb, disk, emulated=emulated)
        live = libvirt.VIR_DOMAIN_AFFECT_LIVE
        cpu, io = {"cpu_shares": limits.cpu_weight}, {"weight": limits.io_weight}
        limit_file_size(self._uids.machine(record.ip), limits.file_mb)
        self._try(record, "memory", lambda: self._limit_memory(record, limits.memory_mb))
        self._try(record, "processes", lambda: self._limit_processes(record, limits.pids))
        self._try(record, "CPU weights", lambda: target.setSchedulerParametersFlags(cpu, live))
        self._try(record, "I/O weights", lambda: target.setBlkioParameters(io, live))

    def remove_groups(self, machine_id: str = "") -> None:
        """Remove the groups of machines without a process: of one machine, or of all. Idempotent."""
        wanted = _group_name(name_for(self._instance, machine_id))
        for group in CGROUPS.glob("pids/machine*/*"):
            if wanted in group.name.replace("\\x2d", "-"):
                with suppress(OSError):
                    group.rmdir()  # refused while a process is in it
        self._missing = {(machine, what) for machine, what in self._missing if machine != machine_id}

    def _limit_memory(self, record: Record, megabytes: int) -> None:
        file = "memory.max" if is_unified() else "memory.limit_in_bytes"
        for _, group in self._groups(record, "memory"):
            (group / file).write_text(f"{megabytes << 20}\n")
            if (group / "memory.swap.max").exists():
                (group / "memory.swap.max").write_text("0\n")

    def _limit_processes(self, record: Record, limit: int) -> None:
        for pid, group in self._groups(record, "pids"):
            if not is_unified():
                group.mkdir(parents=True, exist_ok=True)
            elif not (group / "pids.max").exists():
                (group.parent / "cgroup.subtree_control").write_text("+pids\n")
            (group / "pids.max").write_text(f"{limit}\n")
            if not is_unified():
                (group / "cgroup.procs").write_text(f"{pid}\n")

    def _groups(self, record: Record, controller: str) -> list[tuple[int, Path]]:
        """Return the machine's processes, with their groups. Raise OSError if there are none."""
        pids = processes_of(self._uids.machine(record.ip))
        found = [(pid, group) for pid in pids if (group := machine_group(pid, controller)) is not None]
        if not found:
            raise OSError("the machine has no control group")
        return found

    def _try(self, record: Record, what: str, apply: Callable[[], object]) -> None:
        try:
            apply()
        except (libvirt.libvirtError, OSError) as error:
            if (record.id, what) not in self._missing:
                self._missing.add((record.id, what))
                log.warning("machine %s runs without a limit of %s: %s", record.id, what, error)


def limit_file_size(uid: int, megabytes: int) -> None:
    """Limit the files of a user's processes. Raise BackendUnavailable if it has none, or they cannot be limited."""
    pids, size = processes_of(uid), megabytes << 20
    if not pids:
        raise BackendUnavailable("The machine's process has ended.")
    for pid in pids:
        try:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))
        except PermissionError:
            # Without CAP_SYS_RESOURCE the real user must be the same. The effective one stays root, so that the
            # machine's process can neither trace this one nor change what it does.
            user = ("setpriv", f"--ruid={uid}", f"--rgid={uid}", "--keep-groups")
            run_tool([*user, "prlimit", f"--pid={pid}", f"--fsize={size}:{size}"], name="prlimit")
        except OSError as error:
            raise BackendUnavailable("The machine's process could not be limited.") from error


def machine_group(pid: int, controller: str) -> Path | None:
    """Return the directory of a machine's control group; that of `pids` need not exist with cgroup v1.

    None if libvirt has made no group for it. Raise OSError if the process ended.
    """
    wanted = "memory" if controller == "pids" else controller
    for row in (_PROC / str(pid) / "cgroup").read_text().splitlines():
        _, controllers, path = row.split(":", 2)
        parts = path.strip("/").split("/")
        # libvirt's own groups are below the machine's.
        found = next((number for number, part in enumerate(parts) if is_machine_group(part)), None)
        if found is None:
            continue
        if is_unified():
            return CGROUPS.joinpath(*parts[: found + 1])
        if wanted in controllers.split(","):
            return CGROUPS.joinpath(controller, *parts[: found + 1])
    return None


def is_machine_group(name: str) -> bool:
    """Return whether libvirt made the group for a machine: by itself, or by systemd."""
    return name.endswith(".libvirt-qemu") or (name.startswith("machine-qemu") and name.endswith(".scope"))


def is_unified() -> bool:
    """Return whether the host has cgroup v2 only."""
    return (CGROUPS / "cgroup.controllers").exists()


def _group_name(domain: str) -> str:
    """Return the part of a group's name that libvirt makes of the domain's: without what a host name cannot contain."""
    return domain.replace("_", "")


def _between(lowest: int, value: int, highest: int) -> int:
    return max(lowest, min(value, highest))
