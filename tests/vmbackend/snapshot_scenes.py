"""Read the content of disks on the host, without a guest, for tests of snapshots."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tests.compiled import compile_program
from vmbackend.guest.session import GuestAddress, GuestSession
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.record import Layer, MachineDir
from vmbackend.libvirt.store import StoredMemory
from vmbackend.power import StartedFrom

from .conftest import Harness

# Those of a group are followed by "for group".
_SUMS = re.compile(r"^Free (?:blocks|inodes) count wrong \(\d+, counted=\d+\)\.\nFix\? yes$", re.MULTILINE)


def driver_of(harness: Harness) -> LibvirtDriver:
    assert isinstance(harness.driver, LibvirtDriver)
    return harness.driver


def files_of(harness: Harness, machine_id: str) -> MachineDir:
    return driver_of(harness)._inventory.machine_dir(machine_id)


def entry_of(harness: Harness, snapshot_id: str) -> StoredMemory:
    return driver_of(harness)._snapshot_store.find_entry(snapshot_id)


def run(harness: Harness, address: GuestAddress, script: str) -> str:
    result = harness.pool.call(address, lambda session: session.execute(script, timeout=120.0), 150)
    assert result.exit_code == 0, result
    return str(result.stdout.decode()).strip()


def put(harness: Harness, address: GuestAddress, path: str, content: bytes) -> None:
    """Write a file in a guest."""

    async def blocks() -> AsyncIterator[bytes]:
        yield content

    async def write(session: GuestSession) -> None:
        await session.write(path, blocks())

    harness.pool.call(address, write, 150)


def put_program(harness: Harness, address: GuestAddress, source: Path, path: str, aside: Path) -> None:
    """Compile a C program of the tests, and put it into a guest."""
    program = aside / "program"
    compile_program(program, ("-static", "-O2", "-Wall", "-Werror"), [source])
    put(harness, address, path, program.read_bytes())
    run(harness, address, f"chmod 755 {path}")


def load_fork(harness: Harness, snapshot_id: str) -> GuestAddress:
    """Another machine that goes on from the memory and the disk of a snapshot."""
    spec = harness.spec(snapshot=snapshot_id)
    identity = harness.driver.prepare(spec)
    assert harness.driver.load(spec.id, snapshot_id) is StartedFrom.SNAPSHOT
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    return GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)


def flat_copy(folder: Path, layers: Sequence[Layer], target: Path) -> Path:
    """A raw file with what the layers of a disk show."""
    image: dict[str, object] = {}
    for layer in layers:
        below = {"backing": image} if image else {}
        image = {"driver": layer.format, "file": {"driver": "file", "filename": str(folder / layer.file)}, **below}
    command = ["qemu-img", "convert", "-U", "-O", "raw", "json:" + json.dumps(image), str(target)]
    subprocess.run(command, check=True, capture_output=True)
    return target


def check_file_system(disk: Path) -> None:
    """Require a file system of which nothing is wrong once its journal is replayed.

    What was deleted while open is freed by that. The two sums in the superblock are repaired besides: Linux writes them
    when it unmounts, and never reads them again otherwise, as it adds up those of the groups when it mounts.
    """
    replayed = subprocess.run(["e2fsck", "-fy", str(disk)], capture_output=True, text=True, check=False)
    assert replayed.returncode in (0, 1), replayed.stdout
    repaired = replayed.stdout.count("? yes") - len(_SUMS.findall(replayed.stdout))
    assert repaired == 0, replayed.stdout
    assert subprocess.run(["e2fsck", "-fn", str(disk)], capture_output=True, check=False).returncode == 0


def content_of(disk: Path, name: str) -> str | None:
    """A file of the guest's root, on a disk whose file system was checked; None if there is none."""
    for place in (f"/upper/{name}", f"/{name}"):
        command = ["debugfs", "-R", f"cat {place}", str(disk)]
        done = subprocess.run(command, capture_output=True, check=False)
        if b"File not found" not in done.stderr:
            return done.stdout.decode().strip()
    return None


def contents_of_layers(folder: Path, layers: Sequence[Layer], names: Sequence[str], aside: Path) -> dict[str, str]:
    """The files of these names that there are on a disk whose file system is whole."""
    disk = flat_copy(folder, layers, aside / "flat.raw")
    check_file_system(disk)
    try:
        return {name: content for name in names if (content := content_of(disk, name)) is not None}
    finally:
        disk.unlink()


def content_of_layers(folder: Path, layers: Sequence[Layer], name: str, aside: Path) -> str:
    return contents_of_layers(folder, layers, [name], aside).get(name, "")


def content_of_snapshot(harness: Harness, snapshot_id: str, name: str, aside: Path) -> str:
    entry = entry_of(harness, snapshot_id)
    return content_of_layers(entry.path, entry.layers, name, aside)
