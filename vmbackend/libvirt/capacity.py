"""The host's size and free resources, from the kernel: libvirt calls may block."""

from __future__ import annotations

import os
from pathlib import Path

from vmbackend.driver import Capacity
from vmbackend.errors import CapacityExceeded
from vmbackend.libvirt import disks
from vmbackend.libvirt.settings import LibvirtSettings

_MEMINFO = Path("/proc/meminfo")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def capacity(settings: LibvirtSettings, *, accelerated: bool) -> Capacity:
    """Return what `Driver.capacity` returns; the host's reserve does not count as free."""
    memory = _meminfo()
    return Capacity(
        arch=_ARCHITECTURES.get(os.uname().machine, os.uname().machine),
        accelerated=accelerated,
        cpus=os.cpu_count() or 1,
        memory_mb=memory["MemTotal"],
        memory_free_mb=max(0, memory["MemAvailable"] - settings.memory_reserve_mb),
        disk_mb=disks.total_mb(settings.machines_dir),
        disk_free_mb=max(0, disks.free_mb(settings.machines_dir) - settings.disk_reserve_mb),
        # Every machine's devices can be saved.
        snapshots=True,
        boot_id=_BOOT_ID.read_text().strip(),
    )


def require_memory(settings: LibvirtSettings, needed_mb: int) -> None:
    """Raise CapacityExceeded."""
    free = _meminfo()["MemAvailable"] - settings.memory_reserve_mb
    if needed_mb > free:
        message = f"The host has no memory for {needed_mb} MiB ({max(0, free)} MiB are free)."
        raise CapacityExceeded(message, resource="memory_mb")


def _meminfo() -> dict[str, int]:
    """Return the kernel's figures in MiB."""
    pairs = (line.split(":") for line in _MEMINFO.read_text().splitlines())
    return {name: int(value.split()[0]) // 1024 for name, value in pairs}
