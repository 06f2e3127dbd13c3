"""Create to first successful command through the API, beside a raw QEMU start of the same kernel, initrd, disks and
memory to the guest agent's first answer. Interleaved.

    STATE=./var .venv/bin/python -m benchmarks.boot [--count 10] [--memory 512]

The instance has PLATFORM_BOOT_TEMPLATES=0 and PLATFORM_POOL_MEMORY_MB=0: every create is a boot.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.common import Instance, show
from supervise.instance import load_instance
from vmbackend.driver import Boot
from vmbackend.guest.bootconfig import FW_CFG_NAME, GuestConfig, encode_config, generate_host_key
from vmbackend.guest.kit import KERNEL_ARGS, find_kit
from vmbackend.images.store import ImageSettings, ImageStore
from vmbackend.libvirt import disks
from vmbackend.libvirt.host_tsc import HostTsc

BAR = "at most 1.25"


def through_the_api(instance: Instance, memory: int, disk: int) -> float:
    """Seconds from the create request to the end of the first command; the workspace is deleted afterwards."""
    with instance.client() as client:
        begun = time.monotonic()
        config = {"memory_mb": memory, "disk_size_mb": disk}
        made = client.post("/workspace", json={"name": "bench", "image": instance.image, "config": config})
        made.raise_for_status()
        path = f"/workspace/{made.json()['workspace']['id']}"
        ran = client.post(f"{path}/exec", json={"cmd": ["true"]})
        taken = time.monotonic() - begun
        if ran.json().get("exit_code") != 0:
            raise SystemExit(f"the command failed: {ran.text}")
        client.delete(path).raise_for_status()
    return taken


class RawMachine:
    """QEMU by hand with the devices that the platform's machines have."""

    def __init__(self, folder: Path, instance: Instance, memory: int, disk: int) -> None:
        settings = load_instance().settings()
        self.kit = find_kit(settings.kit_dir)
        images = settings.images_dir
        store = ImageStore(images, ImageSettings(local_store=images / "oci"))
        self.image = store.ensure(instance.image, progress=lambda p, s: None, deadline=time.monotonic() + 300)
        self.folder, self.memory, self.disk = folder, memory, disk
        self.accel = "kvm" if settings.accel == "kvm" else "tcg"
        self.tsc = HostTsc()

    def prepare(self) -> None:
        """Disk and configuration, made for each start as a create makes them; not part of the measured time."""
        for path in self.folder.iterdir():
            path.unlink()
        disks.create_disk(self.folder / "data.raw", self.disk)
        public = generate_host_key(self.folder / "host_key")
        config = GuestConfig(
            boot=Boot(hostname="raw"),
            address="10.0.2.15/24",
            gateway="10.0.2.2",
            dns=(),
            host_key=(self.folder / "host_key").read_bytes(),
            authorized_key=public,
        )
        (self.folder / "config").write_bytes(encode_config(config))

    def command(self) -> list[str]:
        drives = []
        for serial, path, only in (("base", self.image.rootfs, "on"), ("data", self.folder / "data.raw", "off")):
            drives += ["-drive", f"if=none,id={serial},file={path},format=raw,readonly={only},aio=threads"]
            drives += ["-device", f"virtio-blk-pci,drive={serial},serial={serial}"]
        return [
            "qemu-system-x86_64", "-machine", "pc-q35-7.2", "-accel", self.accel, "-cpu", "max",
            "-m", str(self.memory), "-smp", "1", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", str(self.kit.kernel), "-initrd", str(self.kit.initrd),
            "-append", KERNEL_ARGS + self.tsc.kernel_args(),
            "-fw_cfg", f"name={FW_CFG_NAME},file={self.folder / 'config'}", *drives,
            "-netdev", "user,id=n0,restrict=on", "-device", "virtio-net-pci,netdev=n0,romfile=",
            "-device", "virtio-rng-pci", "-device", "virtio-balloon-pci", "-serial", f"file:{self.folder / 'console'}",
            "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=agent,path={self.folder / 'agent'},server=on,wait=off",
            "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
            "-chardev", f"file,id=events,path={self.folder / 'events'}",
            "-device", "virtserialport,chardev=events,name=org.microvm.events.0",
        ]  # fmt: skip

    def run(self) -> float:
        """Seconds from the start of the process to the agent's first answer."""
        self.prepare()
        begun = time.monotonic()
        process = subprocess.Popen(self.command())
        try:
            self._first_answer()
            return time.monotonic() - begun
        finally:
            process.kill()
            process.wait()

    def _first_answer(self) -> None:
        path, until = str(self.folder / "agent"), time.monotonic() + 120
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as agent:
                agent.settimeout(0.5)
                agent.connect(path)
                agent.sendall(json.dumps({"execute": "guest-ping"}).encode() + b"\n")
                # The port holds the request until the agent opens it, so one is enough for most of the boot.
                agent.settimeout(60)
                if b"return" in agent.recv(4096):
                    return
            time.sleep(0.01)
        raise SystemExit("the raw machine's agent never answered")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--memory", type=int, default=512, help="MiB")
    parser.add_argument("--disk", type=int, default=512, help="MiB")
    options = parser.parse_args()
    instance = Instance.load()
    folder = Path(tempfile.mkdtemp(prefix="mvmb-"))
    try:
        raw_machine = RawMachine(folder, instance, options.memory, options.disk)
        ours, raw = [], []
        for number in range(options.count):
            raw.append(raw_machine.run())
            ours.append(through_the_api(instance, options.memory, options.disk))
            print(f"  {number + 1:>3}: api {ours[-1]:.3f} s, raw {raw[-1]:.3f} s", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show("create to first command", ours, raw, bar=BAR)


if __name__ == "__main__":
    main()
