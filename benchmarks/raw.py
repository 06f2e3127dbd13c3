"""A guest of the same kit, image and memory under libvirt alone: what our operations are measured against."""

from __future__ import annotations

import dataclasses
import os
import select
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from benchmarks.common import Instance
from supervise.instance import load_instance
from vmbackend.driver import Boot, MachineSpec
from vmbackend.errors import BackendError
from vmbackend.images.store import ImageSettings, ImageStore
from vmbackend.libvirt import agent
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.settings import LibvirtSettings

SUBNET = IPv4Network("10.213.7.0/24")
MACHINE = "raw"

# The same on both sides of a comparison: a program without libraries to load.
COMMAND = ("/run/kit/bin/busybox", "true")


@dataclasses.dataclass(frozen=True)
class RawGuest:
    """One defined machine; `domain` is libvirt's own handle, `events` the pipe of its events port."""

    domain: Any
    events: Path

    def first_command(self) -> None:
        """Until a command has run in the guest to its end."""
        started: Any = self._until(
            lambda: agent.send_command(self.domain, "guest-exec", 1, path=COMMAND[0], arg=list(COMMAND[1:]))
        )
        while not self._until(lambda: agent.send_command(self.domain, "guest-exec-status", 1, pid=started["pid"]))[
            "exited"
        ]:
            time.sleep(0.002)

    def start(self) -> None:
        """Until the guest says that it is ready, which is what the platform waits for."""
        pipe = os.open(self.events, os.O_RDWR | os.O_NONBLOCK)
        try:
            self.domain.create()
            said = b""
            while b"ready" not in said and select.select([pipe], [], [], 60)[0]:
                said += os.read(pipe, 4096)
        finally:
            os.close(pipe)

    def stop(self) -> None:
        self.domain.shutdown()
        while self.domain.isActive():
            time.sleep(0.005)

    def _until(self, ask: Any) -> Any:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                return ask()
            except BackendError:
                time.sleep(0.005)
        raise SystemExit("the raw machine's agent never answered")


@contextmanager
def raw_guest(instance: Instance, memory: int) -> Iterator[RawGuest]:
    """A running machine; removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="mvmr-", dir="/tmp"))
    driver = LibvirtDriver(raw_settings(folder))
    driver.open(lambda event: None)
    try:
        images = driver._settings.images
        image = images.ensure(instance.image, progress=lambda p, s: None, deadline=time.monotonic() + 300)  # type: ignore[attr-defined]
        spec = MachineSpec(
            id=MACHINE, image=image.digest, cpus=1, memory_mb=memory, disk_mb=512, ip="10.213.7.9", boot=Boot("raw")
        )
        driver.prepare(spec)
        driver._confiner.access.give_files(driver._inventory.machine_dir(MACHINE), spec.ip)  # as `start` does
        # Not through the driver: libvirt's own handle.
        guest = RawGuest(
            driver._domains.find(driver._libvirt.connection, MACHINE), folder / "m" / MACHINE / "events.out"
        )
        guest.start()
        yield guest
    finally:
        driver.delete(MACHINE)
        driver.close()
        driver.uninstall()
        shutil.rmtree(folder, ignore_errors=True)


def raw_settings(folder: Path) -> LibvirtSettings:
    """Of an instance of its own with the running one's kit, images and acceleration."""
    settings = load_instance().settings()
    images = settings.images_dir
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return LibvirtSettings(
        uri=f"qemu:///embed?root={folder}/l",
        machines_dir=folder / "m",
        instance=uuid.uuid4().hex[:6],
        subnet=SUBNET,
        kit_dir=settings.kit_dir,
        control_public_key=key.with_suffix(".pub").read_text().strip(),
        images_dir=images,
        images=ImageStore(images, ImageSettings(local_store=images / "oci")),
        accel="kvm" if settings.accel == "kvm" else "qemu",
    )
