"""The real libvirt driver for tests: an embedded libvirt, a bridge and a subnet for each test.

An embedded libvirt uses one root until its process ends, so all drivers of one test process share one root and
differ in instance name, subnet and directory.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from tests.cache import CACHE, use_kit_dir
from vmbackend.driver import Driver, MachineSpec
from vmbackend.guest.kit import build_kit, find_kit
from vmbackend.guest.ssh import SSHGuestSession
from vmbackend.libvirt.confinement_check import find_processes
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.reach import unmount_all
from vmbackend.libvirt.settings import LibvirtSettings

from .conftest import Harness

IMAGE = "sha256:" + "b" * 64
REPOSITORY = Path(__file__).parents[2]
# Of a boot and of a power-off: beside other work they take several times as long as on a quiet host.
HANG_SECONDS = 300.0
BUSYBOX_VERSION = 1  # to be raised when the image changes besides busybox: the cache outlives the tests
_ROOTS: dict[int, Path] = {}


@dataclass(frozen=True)
class _Image:
    rootfs: Path


@dataclass(frozen=True)
class _Images:
    """One image: busybox and nothing else."""

    rootfs: Path

    def get(self, digest: str) -> _Image | None:
        return _Image(self.rootfs) if digest == IMAGE else None


def busybox_image(cache: Path) -> Path:
    """Built once; concurrent processes wait for each other."""
    cache.mkdir(parents=True, exist_ok=True)
    program = hashlib.sha256(Path("/bin/busybox").read_bytes()).hexdigest()[:16]
    image = cache / f"busybox-{program}-{BUSYBOX_VERSION}.squashfs"
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not image.exists():
            _build_busybox_image(image)
    return image


def _build_busybox_image(image: Path) -> None:
    with tempfile.TemporaryDirectory(dir=image.parent) as name:
        root = Path(name) / "root"
        for folder in ("bin", "proc", "sys", "dev", "run", "tmp", "etc", "root", "var"):
            (root / folder).mkdir(parents=True)
        shutil.copy("/bin/busybox", root / "bin/busybox")
        applets = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True)
        for applet in set(applets.stdout.split()) - {"busybox"}:
            (root / "bin" / applet).symlink_to("busybox")
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (root / "etc/group").write_text("root:x:0:\n")
        partial = image.with_suffix(".new")
        command = ["mksquashfs", str(root), str(partial), "-quiet", "-noappend", "-all-root", "-no-progress"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        partial.replace(image)


def _root() -> Path:
    """This process's libvirt root; its capability cache makes later opens fast."""
    root = _ROOTS.get(os.getpid())
    if root is None:
        root = Path(tempfile.mkdtemp(prefix="mvl", dir="/tmp"))
        atexit.register(shutil.rmtree, root, ignore_errors=True)
        _ROOTS[os.getpid()] = root
    return root


def free_subnet() -> IPv4Network:
    """A /24 that no interface of this host uses; the workers of a test run choose from disjoint ranges."""
    used = subprocess.run(["ip", "-4", "address"], capture_output=True, text=True, check=True).stdout
    first = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 5 * 50
    start = uuid.uuid4().int % 50
    for number in range(50):
        third = first + (start + number) % 50
        if f" 10.214.{third}." not in used:
            return IPv4Network(f"10.214.{third}.0/24")
    raise AssertionError("no free subnet")


def make_settings(folder: Path, **changes: Any) -> LibvirtSettings:
    """Settings of a separate instance; `folder` contains its machines and the control key."""
    # Otherwise it would be mounted elsewhere, and a process could not be found by its files. tests/vm does that.
    folder.chmod(0o711)
    key = folder / "control"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    kit_dir = use_kit_dir()
    build_kit(kit_dir, lambda _percent, _words: None)
    fields: dict[str, Any] = {
        "uri": changes.get("uri") or f"qemu:///embed?root={_root()}",
        "machines_dir": folder / "m",
        "instance": uuid.uuid4().hex[:6],
        "subnet": free_subnet(),
        "kit_dir": kit_dir,
        "control_public_key": key.with_suffix(".pub").read_text().strip(),
        "images": _Images(busybox_image(CACHE)),
        "images_dir": CACHE,
        "accel": "qemu",
    }
    return LibvirtSettings(**(fields | changes))


def qemu_pids(machines_dir: Path, machine_id: str = "") -> list[int]:
    """PIDs of the QEMUs that use a file below the directory, or below that of one machine."""
    needle = f"{machines_dir / machine_id}/".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"qemu-system" in command.split(b"\0")[0] and needle in command:
            found.append(int(entry.name))
    return found


def tear_down(settings: LibvirtSettings) -> None:
    """Remove the remains of an instance: its QEMUs, its network, its files."""
    for process in find_processes(settings.instance, settings.machines_dir):
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + HANG_SECONDS
    while find_processes(settings.instance, settings.machines_dir) and time.monotonic() < deadline:
        time.sleep(0.05)
    Network(settings).uninstall()
    unmount_all(settings.instance)
    shutil.rmtree(settings.machines_dir.parent, ignore_errors=True)


def remove_if_killed(settings: LibvirtSettings) -> None:
    """Have a watcher process tear this instance down if this process ends without doing so."""
    known = {
        "instance": settings.instance,
        "subnet": str(settings.subnet),
        "machines_dir": str(settings.machines_dir),
        "root": str(_root()),
    }
    watcher = _watcher(os.getpid())
    assert watcher.stdin is not None
    watcher.stdin.write(json.dumps(known).encode() + b"\n")
    watcher.stdin.flush()


@cache
def _watcher(_pid: int) -> subprocess.Popen[bytes]:
    """One watcher per process; the kernel closes its pipe when the process ends."""
    # Without the marker of a CI run, whose cleanup would end the watcher too early.
    environment = {key: value for key, value in os.environ.items() if key != "PLATFORM_CI_RUN"}
    environment["PYTHONPATH"] = f"{REPOSITORY}:{REPOSITORY / 'platform'}"
    command = [sys.executable, "-m", "tests.vmbackend.libvirt_watcher"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, cwd=REPOSITORY, env=environment, start_new_session=True)


def corrupt_memory(driver: Driver, machine_id: str) -> None:
    """Truncate the saved memory to half its size."""
    assert isinstance(driver, LibvirtDriver)
    memory = driver._inventory.machine_dir(machine_id).memory
    os.truncate(memory, memory.stat().st_size // 2)


def undefine(driver: Driver, machine_id: str) -> None:
    """End the machine's process and undefine the machine without the driver."""
    assert isinstance(driver, LibvirtDriver)
    domain = driver._domains.find(driver._libvirt.connection, machine_id)
    if domain.isActive():
        domain.destroy()
    domain.undefine()


def fill_disk(driver: Driver) -> None:
    assert isinstance(driver, LibvirtDriver)
    full = replace(driver._settings, disk_reserve_mb=1 << 40)
    driver._saved_state._settings = driver._snapshots._settings = full


class LibvirtHarness(Harness):
    """Machines get addresses of the subnet of this instance, so that concurrent test runs do not conflict."""

    settings: LibvirtSettings

    def spec(self, **changes: Any) -> MachineSpec:
        changes.setdefault("ip", str(self.settings.subnet.network_address + 10 + self._used))
        return super().spec(**changes)

    def close(self) -> None:
        try:
            super().close()
        finally:
            tear_down(self.settings)


def make_harness(tmp_path: Path, rootfs: Path | None = None, **changes: Any) -> Harness:
    """`rootfs`: an image in CACHE; default: busybox alone. `changes`: of the settings."""
    # Not below tmp_path: its paths are too long for the sockets of a machine.
    folder = Path(tempfile.mkdtemp(prefix="mvd", dir="/tmp"))
    settings = make_settings(folder, **({"images": _Images(rootfs)} if rootfs else {}), **changes)
    remove_if_killed(settings)

    def kill(_driver: Driver, machine_id: str) -> None:
        (pid,) = qemu_pids(settings.machines_dir, machine_id)
        os.kill(pid, signal.SIGKILL)

    try:
        harness = LibvirtHarness(
            lambda: LibvirtDriver(settings),
            lambda address: SSHGuestSession(
                address, folder / "control", search_folder=lambda: find_kit(settings.kit_dir).search
            ),
            IMAGE,
            HANG_SECONDS,
            kill=kill,
            corrupt_memory=corrupt_memory,
            undefine=undefine,
            fill_disk=fill_disk,
            sleep_seconds=5.0,
        )
    except BaseException:
        tear_down(settings)
        raise
    harness.settings = settings
    return harness


def frame_socket(interface: str) -> socket.socket:
    """A raw socket on an interface, to send forged frames."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    raw.bind((interface, 0))
    return raw
