"""Headers of layers that a machine's process has written: nothing of root's follows them."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from vmbackend.copies import AfterSnapshot
from vmbackend.errors import BackendError, BackendUnavailable
from vmbackend.libvirt.flattening import convert_layers
from vmbackend.libvirt.layers import LAYERS_MAX, add_overlay, freeze_file
from vmbackend.libvirt.record import Chain, MachineDir

from .conftest import Harness
from .snapshot_scenes import entry_of, files_of, run

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
