"""Limits of a machine's process by control groups: memory, processes, and its share of CPU and disk.

They are applied while its CPUs are stopped, before they run for the first time or again, and they last as long as the
process. libvirt knows all but the number of processes, for which it has no setting: that one is set in the machine's
own group (cgroup v2), or in one of the same name of the `pids` hierarchy (v1), where libvirt makes none.

A limit that the host does not support is logged once, and `make doctor` shows it; machines run without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt

from vmbackend.libvirt.confinement import processes_of
from vmbackend.libvirt.domain import name_for
from vmbackend.libvirt.domainxml import TRANSLATION_CACHE_MB, vcpus_for
from vmbackend.libvirt.record import Record
from vmbackend.libvirt.settings import LibvirtSettings

log = logging.getLogger(__name__)

CGROUPS = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
# What a process needs besides its guest's memory and translated code; the measurements are in the decisions.
_OVERHEAD_MB, _OVERHEAD_VCPU_MB = 256, 8
# QEMU's own threads and at most 64 for disk requests; the virtual CPUs come on top.
_THREADS = 128


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """The limits of one machine. Weights are relative to those of other machines, by the number of CPUs."""

    memory_mb: int
    pids: int
    cpu_weight: int
    io_weight: int


def limits_for(cpus: float, memory_mb: int, *, emulated: bool) -> MachineLimits:
    """The limits of a machine of this size."""
    vcpus = vcpus_for(cpus)
    overhead = _OVERHEAD_MB + _OVERHEAD_VCPU_MB * vcpus + (TRANSLATION_CACHE_MB if emulated else 0)
    return MachineLimits(
        memory_mb=memory_mb + overhead,
        pids=_THREADS + vcpus,
        cpu_weight=_between(2, int(cpus * (100 if _is_unified() else 1024)), 10_000),
        io_weight=_between(100, int(cpus * 100), 1000),
    )


class Limits:
    """Applies limits to one instance's machines."""

    def __init__(self, settings: LibvirtSettings) -> None:
        self._uids = settings.uids
        self._instance = settings.instance
        self._disabled = settings.is_test
        self._missing: set[str] = set()

    def apply(self, target: Any, record: Record, *, emulated: bool) -> None:
        """Limit the process of a machine whose CPUs are stopped. Never fails."""
        if self._disabled:
            return
        limits = limits_for(record.cpus, record.memory_mb, emulated=emulated)
        live = libvirt.VIR_DOMAIN_AFFECT_LIVE
        self._try("memory", lambda: target.setMemoryParameters({"hard_limit": limits.memory_mb << 10}, live))
        self._try("CPU weights", lambda: target.setSchedulerParametersFlags({"cpu_shares": limits.cpu_weight}, live))
        self._try("I/O weights", lambda: target.setBlkioParameters({"weight": limits.io_weight}, live))
        self._try("processes", lambda: self._limit_processes(record, limits.pids))

    def remove_groups(self, machine_id: str = "") -> None:
        """Remove the groups of machines without a process: of one machine, or of all. Idempotent."""
        for group in CGROUPS.glob("pids/machine*/*"):
            if name_for(self._instance, machine_id) in _plain(group.name):
                with suppress(OSError):
                    group.rmdir()  # refused while a process is in it

    def _limit_processes(self, record: Record, limit: int) -> None:
        for pid in processes_of(self._uids.machine(record.ip)):
            group = self._process_group(pid, name_for(self._instance, record.id))
            (group / "pids.max").write_text(f"{limit}\n")
            if not _is_unified():
                (group / "cgroup.procs").write_text(f"{pid}\n")

    def _process_group(self, pid: int, name: str) -> Path:
        """The group whose `pids.max` counts this process; made if it is missing."""
        group = machine_group(pid, name)
        if group is None:
            raise OSError("the machine has no control group")
        if not _is_unified():
            group.mkdir(parents=True, exist_ok=True)
        elif not (group / "pids.max").exists():
            (group.parent / "cgroup.subtree_control").write_text("+pids\n")
        return group

    def _try(self, what: str, apply: Callable[[], object]) -> None:
        try:
            apply()
        except (libvirt.libvirtError, OSError) as error:
            log.debug("limit of %s: %s", what, error)
            if what not in self._missing:
                self._missing.add(what)
                log.warning("this host's control groups do not support limits of %s: machines run without", what)


def machine_group(pid: int, name: str) -> Path | None:
    """The directory of a machine's group: of the one hierarchy, or where it belongs in that of `pids` (cgroup v1).

    None if libvirt has made no group whose name contains `name`.
    """
    for row in (_PROC / str(pid) / "cgroup").read_text().splitlines():
        _, controllers, path = row.split(":", 2)
        # libvirt's own groups are below the machine's.
        parts = path.strip("/").split("/")
        found = next((number for number, part in enumerate(parts) if name in _plain(part)), None)
        if found is not None and controllers in ("", "memory"):
            return CGROUPS.joinpath("" if not controllers else "pids", *parts[: found + 1])
    return None


def _plain(name: str) -> str:
    """A group's name without systemd's escapes."""
    return name.replace("\\x2d", "-")


def _is_unified() -> bool:
    return (CGROUPS / "cgroup.controllers").exists()


def _between(lowest: int, value: int, highest: int) -> int:
    return max(lowest, min(value, highest))
