"""Does KVM boot here? Only a boot tells: nested variants open /dev/kvm and never run a kernel."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt.disks import write_atomically

_DEVICE = Path("/dev/kvm")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SECONDS = 6.0  # a kernel under KVM panics for want of a root disk within one


@dataclass(frozen=True, slots=True)
class KvmReport:
    """`message` is for a person: what was found and, where it fails, what follows from it."""

    works: bool
    message: str


def probe_kvm(kernel: Path, workdir: Path) -> KvmReport:
    """Boot `kernel` without a disk under KVM and see whether it comes to its panic; 6 seconds at most.

    The answer is kept in `workdir` until the host boots anew, the kernel changes or /dev/kvm comes or goes.
    Raises BackendUnavailable where QEMU is missing.
    """
    cache = workdir / "kvm.json"
    key = _key(kernel)
    try:
        kept = json.loads(cache.read_bytes())
        if kept["key"] == key:
            return KvmReport(bool(kept["works"]), str(kept["message"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no answer, or none that can be read: probe
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
    return KvmReport(False, "/dev/kvm is there but boots no kernel: machines run under (slow) software emulation.")


def _boots(kernel: Path) -> bool:
    # No root disk: the kernel's own panic, and -no-reboot, end QEMU as soon as it has proved that it runs.
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
