"""Headers of layers that a machine's process has written: nothing of root's follows them."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vmbackend.copies import AfterSnapshot
from vmbackend.errors import BackendError, BackendUnavailable
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt.flattening import convert_layers
from vmbackend.libvirt.layers import LAYERS_MAX, add_overlay, freeze_file
from vmbackend.libvirt.record import Chain, MachineDir
from vmbackend.power import StartedFrom

from .conftest import Harness
from .snapshot_scenes import entry_of, files_of, load_fork, put, run

MIB = 1 << 20
SECRET = b"a secret of the host " * 1000


@pytest.fixture
def files(short: Path) -> MachineDir:
    made = MachineDir(short, "one")
    made.create()
    with made.data_disk.open("wb") as disk:
        disk.truncate(64 * MIB)
        disk.write(b"of the machine")
    return made


@pytest.fixture
def secret(short: Path) -> Path:
    path = short / "secret"
    path.write_bytes(SECRET)
    return path


def name_backing_file(layer: Path, path: Path) -> None:
    """As `qemu-img rebase -u` does it, by a process that writes the file's bytes."""
    name = str(path).encode()
    with layer.open("r+b") as file:
        file.seek(8)
        file.write(struct.pack(">QI", 0x200, len(name)))
        file.seek(0x200)
        file.write(name)


def name_data_file(layer: Path, path: Path) -> None:
    """The contents of an image with an external data file."""
    made = layer.with_name("made")
    options = f"data_file={path.with_name('data-file')},data_file_raw=on"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-o", options, str(made), "64M"], check=True)
    path.with_name("data-file").unlink()
    content = made.read_bytes().replace(str(path.with_name("data-file")).encode(), str(path).encode())
    layer.write_bytes(content)
    made.unlink()


def converted(files: MachineDir, chain: Chain) -> bytes:
    target = files.path / "data-new.raw"
    with target.open("wb") as file:
        file.truncate(64 * MIB)
    convert_layers(files, chain, target, 60.0)
    return target.read_bytes()


def test_a_chain_is_converted_by_its_record(files: MachineDir) -> None:
    freeze_file(files.data_disk)
    chain = add_overlay(files, Chain(), 64)
    overlay = files.path / chain.top.file
    subprocess.run(["qemu-io", "-f", "qcow2", "-c", "write -P 7 1M 64k", str(overlay)], check=True, capture_output=True)
    while len(chain.layers) < LAYERS_MAX:
        chain = add_overlay(files, chain, 64)
    seen = converted(files, chain)
    assert seen.startswith(b"of the machine")
    assert seen[MIB : MIB + 65536] == b"\x07" * 65536
    assert (files.path / "data-new.raw").stat().st_blocks * 512 < 4 * MIB, "it is sparse"
    assert files.data_disk.stat().st_uid == 0


def test_a_backing_file_in_a_header_is_not_followed(files: MachineDir, secret: Path) -> None:
    chain = add_overlay(files, Chain(), 64)
    name_backing_file(files.path / chain.top.file, secret)
    assert subprocess.run(["qemu-img", "info", "-U", files.path / chain.top.file], capture_output=True).stdout.count(
        str(secret).encode()
    ), "the header is one that a tool would follow"
    seen = converted(files, chain)
    assert seen.startswith(b"of the machine")
    assert SECRET[:20] not in seen


def test_a_data_file_in_a_header_is_not_within_reach(files: MachineDir, secret: Path) -> None:
    chain = add_overlay(files, Chain(), 64)
    name_data_file(files.path / chain.top.file, secret)
    with pytest.raises(BackendUnavailable):
        converted(files, chain)


@pytest.mark.parametrize("content", [b"", b"QFI\xfb" + b"\xff" * 65532, b"\0" * 65536])
def test_a_layer_that_is_no_image_fails_the_conversion(files: MachineDir, content: bytes) -> None:
    chain = add_overlay(files, Chain(), 64)
    (files.path / chain.top.file).write_bytes(content)
    with pytest.raises(BackendUnavailable):
        converted(files, chain)


@pytest.mark.vm
def test_a_machine_that_wrote_its_own_header_reads_no_other_file(libvirt_harness: Harness, tmp_path: Path) -> None:
    """Neither libvirt, nor a tool, nor its own process opens it; what it shows is its own disk."""
    harness = libvirt_harness
    address = harness.running_machine()
    run(harness, address, "echo kept > /kept; sync")
    harness.driver.snapshot(address.machine_id, "s1", after=AfterSnapshot.STOP)
    files = files_of(harness, address.machine_id)
    secret = harness.settings.machines_dir.parent / "secret"  # type: ignore[attr-defined]
    with secret.open("wb") as file:
        file.truncate(64 * MIB)
        file.write(SECRET)
    name_backing_file(files.top_disk(), secret)
    harness.driver.start(address.machine_id)
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    assert run(harness, address, "cat /kept; head -c 21 /dev/vdb | grep -c secret || true") == "kept\n0"
    harness.driver.snapshot(address.machine_id, "s2")
    opened = subprocess.run(["fuser", str(secret)], capture_output=True, check=False)
    assert opened.returncode != 0, "no process has it open"
    harness.driver.flatten(address.machine_id, 60.0)
    assert run(harness, address, "cat /kept") == "kept"
    assert entry_of(harness, "s2").layers[-1].format == "qcow2"
    harness.driver.delete(address.machine_id)
    spec = harness.spec(snapshot="s2", disk_mb=96)
    harness.driver.prepare(spec)
    harness.driver.start(spec.id)
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    assert SECRET[:20] not in files_of(harness, spec.id).top_disk().read_bytes()
    with pytest.raises(BackendError):
        harness.driver.take_disk(spec.id, "s2")


@contextmanager
def watched(path: Path) -> Iterator[Callable[[], bool]]:
    """Yield what says whether any process of the host has opened the file since it was asked last."""
    libc, opening = ctypes.CDLL(None), 0x20
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert libc.inotify_add_watch(descriptor, bytes(path), opening) >= 0

    def was_opened() -> bool:
        try:
            return bool(os.read(descriptor, 65536))
        except BlockingIOError:
            return False

    try:
        yield was_opened
    finally:
        os.close(descriptor)


def header_with(backing: Path, aside: Path) -> bytes:
    """The first bytes of an image above this file, as many as ext4 leaves free at the beginning of a disk."""
    image = aside / "image"
    options = ["-o", "compat=0.10", "-b", str(backing), "-F", "raw", str(image), "64M"]
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *options], check=True)
    content = image.read_bytes()[:1024]
    assert str(backing).encode() in content
    return content


WRITE_HEADER = "dd if=/header of=/dev/vdb bs=1024 count=1 conv=notrunc,fsync 2> /dev/null; echo kept > /kept; sync"
LOOK = "cat /kept; dd if=/dev/vdb bs=3 count=1 2> /dev/null"


@pytest.mark.vm
def test_a_guest_that_writes_a_header_into_its_disk_has_no_file_read(libvirt_harness: Harness, tmp_path: Path) -> None:
    """Its disk stays what it was to snapshots, forks, restores, sleeps, growth and flattening: bytes."""
    harness, driver = libvirt_harness, libvirt_harness.driver
    secret = harness.settings.machines_dir.parent / "secret"  # type: ignore[attr-defined]
    with secret.open("wb") as file:
        file.truncate(64 * MIB)
        file.write(SECRET)
    parent = harness.running_machine()
    put(harness, parent, "/header", header_with(secret, tmp_path))
    run(harness, parent, WRITE_HEADER)
    top = files_of(harness, parent.machine_id).top_disk()
    probed = subprocess.run(["qemu-img", "info", "-U", str(top)], capture_output=True, check=True).stdout
    assert f"backing file: {secret}".encode() in probed, "the header is one that a tool would follow"

    def look(address: GuestAddress) -> None:
        assert run(harness, address, LOOK) == "kept\nQFI"
        layers = files_of(harness, address.machine_id).path.glob("data*")
        assert not any(SECRET[:20] in layer.read_bytes() for layer in layers)

    with watched(secret) as was_opened:
        assert secret.read_bytes().startswith(SECRET)
        assert was_opened(), "the watch works"
        driver.snapshot(parent.machine_id, "s1")
        driver.snapshot(parent.machine_id, "s2", memory=False)
        look(parent)
        fork = load_fork(harness, "s1")
        look(fork)
        driver.flatten(fork.machine_id, 60.0)
        look(fork)
        driver.snapshot(fork.machine_id, "s3")
        look(load_fork(harness, "s3"))
        look(harness.running_machine(snapshot="s2", disk_mb=96))
        driver.destroy(parent.machine_id)
        driver.take_disk(parent.machine_id, "s1")
        assert driver.load(parent.machine_id, "s1") is StartedFrom.SNAPSHOT
        driver.wait_ready(parent.machine_id, harness.boot_seconds)
        look(parent)
        driver.sleep(parent.machine_id)
        driver.snapshot(parent.machine_id, "s4")
        driver.start(parent.machine_id)
        driver.wait_ready(parent.machine_id, harness.boot_seconds)
        look(parent)
        assert driver.shutdown(parent.machine_id, harness.boot_seconds)
        driver.snapshot(parent.machine_id, "s5")
        driver.prepare(harness.spec(id=parent.machine_id, ip=parent.ip, disk_mb=128))
        driver.start(parent.machine_id)
        driver.wait_ready(parent.machine_id, harness.boot_seconds)
        look(parent)
        harness.reopen_driver()
        assert not was_opened()
