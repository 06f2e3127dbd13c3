"""Probing whether KVM works, by booting a kernel: with some nested variants /dev/kvm opens and no kernel runs."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from vmbackend.errors import BackendUnavailable
from vmbackend.guest.kit import find_kit
from vmbackend.libvirt.disks import write_atomically
from vmbackend.libvirt.settings import LibvirtSettings

log = logging.getLogger(__name__)

_DEVICE = Path("/dev/kvm")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SECONDS = 6.0  # a kernel under KVM panics without a root disk within one second


@dataclass(frozen=True, slots=True)
class KvmReport:
    """`message`: the result and, on failure, its consequence."""

    works: bool
    message: str


def find_domain_type(settings: LibvirtSettings) -> Literal["kvm", "qemu", "test"]:
    """Return how machines run on this host, as libvirt names it. Raise BackendUnavailable."""
    if settings.is_test:
        return "test"
    if settings.accel != "auto":
        return settings.accel
    report = probe_kvm(find_kit(settings.kit_dir).kernel, settings.machines_dir / ".probe")
    log.info("%s", report.message)
    return "kvm" if report.works else "qemu"


def probe_kvm(kernel: Path, workdir: Path) -> KvmReport:
    """Boot `kernel` without a disk under KVM and check that it reaches its panic; takes at most 6 seconds.

    The result is cached in `workdir` until the host reboots, the kernel changes or /dev/kvm appears or disappears.
    Raise BackendUnavailable if QEMU is missing.
    """
    cache = workdir / "kvm.json"
    key = _key(kernel)
    try:
        cached = json.loads(cache.read_bytes())
        if cached["key"] == key:
            return KvmReport(bool(cached["works"]), str(cached["message"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no readable result: probe
    report = _probe(kernel)
    workdir.mkdir(parents=True, exist_ok=True)
    write_atomically(cache, json.dumps({"key": key, **asdict(report)}).encode())
    return report


def _key(kernel: Path) -> str:
    stat = kernel.stat()
    return f"{kernel} {stat.st_mtime_ns} {stat.st_size} {_BOOT_ID.read_text().strip()} {_DEVICE.exists()}"


def _probe(kernel: Path) -> KvmReport:
    if not _DEVICE.exists():
        return KvmReport(False, "There is no /dev/kvm: machines run under (slow) software emulation.")
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return KvmReport(False, "/dev/kvm may not be opened by this user: machines run under software emulation.")
    if _boots(kernel):
        return KvmReport(True, "KVM boots a kernel: machines run at full speed.")
    return KvmReport(False, "/dev/kvm exists but boots no kernel: machines run under (slow) software emulation.")


def _boots(kernel: Path) -> bool:
    # Without a root disk the kernel's panic, with -no-reboot, ends QEMU.
    command = [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-machine", "q35,accel=kvm", "-cpu", "host",
        "-m", "128", "-display", "none", "-serial", "stdio", "-no-reboot",
        "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise BackendUnavailable("The host lacks the program qemu-system-x86_64.") from None
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and b"Kernel panic" in done.stdout
