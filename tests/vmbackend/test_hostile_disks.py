"""Disks that a guest prepared for the host's tools: what they print, and what remains when they fail."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from vmbackend.errors import BackendUnavailable
from vmbackend.libvirt import disks

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(shutil.which("mkfs.ext4", path="/usr/sbin:/sbin") is None, reason="needs e2fsprogs"),
]
DEPTH = 10
# What mkfs.ext4 makes first.
FIRST_INODE = 12


def debugfs(disk: Path, commands: bytes) -> None:
    script = disk.with_suffix(".cmd")
    script.write_bytes(commands)
    subprocess.run(["/sbin/debugfs", "-w", "-f", script, disk], check=True, capture_output=True)


def dead_entries(directory: int, parent: int) -> bytes:
    """The block of a directory whose entries name inodes that do not exist."""
    block = struct.pack("<IHBB4s", directory, 12, 1, 2, b".") + struct.pack("<IHBB4s", parent, 12, 2, 2, b"..")
    for number in range(2, 341):
        size = 12 if number < 340 else 4096 - 340 * 12
        block += struct.pack("<IHBB4s", 3000 + number, size, 4, 1, b"%04d" % number).ljust(size, b"\0")
    return block


def test_what_is_printed_of_a_hostile_disk_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each dead entry is printed with the path of its directory, each byte of which as four characters."""
    disk, content = tmp_path / "data.raw", tmp_path / "content"
    disk.touch()
    command = ["/sbin/mkfs.ext4", "-q", "-F", "-b", "4096", "-O", "^metadata_csum,^dir_index", disk, "64M"]
    subprocess.run(command, check=True)
    content.write_bytes(dead_entries(FIRST_INODE + DEPTH, FIRST_INODE + DEPTH - 1))
    parents = [b"/" + b"/".join([b"\x81" * 250] * depth) for depth in range(1, DEPTH + 1)]
    commands = [*(b"mkdir " + path for path in parents), b"cd " + parents[-1], b"write %b leaf" % bytes(content)]
    debugfs(disk, b"\n".join([*commands, b"sif leaf mode 040755", b"sif leaf links_count 2"]) + b"\n")
    printed: list[str] = []
    run = disks.run_tool
    monkeypatch.setattr(disks, "run_tool", lambda *a, **options: printed.append(run(*a, **options)))
    disks.grow_disk(disk, 128)
    assert sum(map(len, printed)) < 10_000


def test_a_label_that_is_no_text_prevents_nothing(tmp_path: Path):
    disk = tmp_path / "data.raw"
    disks.create_disk(disk, 64)
    debugfs(disk, b"set_super_value volume_name \xff\xfe\n")
    disks.grow_disk(disk, 128)
    assert disks.disk_size_mb(disk) == 128


def test_a_disk_that_the_tools_refuse_gets_no_larger(tmp_path: Path):
    """Linux mounts a file system with a compatible feature that it does not know; e2fsck does not check it."""
    disk = tmp_path / "data.raw"
    disks.create_disk(disk, 64)
    debugfs(disk, b"feature FEATURE_C15\n")
    with pytest.raises(BackendUnavailable):
        disks.grow_disk(disk, 4096)
    assert disks.disk_size_mb(disk) == 64


@pytest.mark.parametrize(("claimed_mb", "kept_mb"), [(64, 64), (96, 96), (1 << 20, 128)])
def test_a_disk_whose_file_system_could_not_grow_keeps_the_file_systems_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claimed_mb: int, kept_mb: int
):
    disk = tmp_path / "data.raw"
    disks.create_disk(disk, 64)
    block = int.from_bytes(disk.read_bytes()[1024 + 24 : 1024 + 28], "little")
    blocks = (claimed_mb << 20) >> (10 + block)
    failing = (
        f"truncate -s \"$1\" /disk; printf '%b' '{escaped(blocks)}' | dd of=/disk bs=1 seek=1028 conv=notrunc; exit 3"
    )
    monkeypatch.setattr(disks, "_CHECK_AND_GROW", failing)
    with pytest.raises(BackendUnavailable):
        disks.grow_disk(disk, 128)
    assert disks.disk_size_mb(disk) == kept_mb


def escaped(number: int) -> str:
    return "".join(f"\\0{byte:03o}" for byte in number.to_bytes(4, "little"))
