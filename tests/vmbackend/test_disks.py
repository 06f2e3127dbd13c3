"""The writable disk: real tools on small files."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from vmbackend.errors import BackendUnavailable, CapacityExceeded
from vmbackend.libvirt import disks

pytestmark = pytest.mark.skipif(shutil.which("mkfs.ext4", path="/usr/sbin:/sbin") is None, reason="needs e2fsprogs")


def _filesystem_mb(path):
    out = subprocess.run(["/sbin/dumpe2fs", "-h", path], capture_output=True, text=True, check=True).stdout
    fields = dict(line.split(":", 1) for line in out.splitlines() if ":" in line)
    return int(fields["Block count"]) * int(fields["Block size"]) // disks.MIB


def test_a_new_disk_is_sparse_private_and_formatted(tmp_path):
    disk = tmp_path / "data.raw"
    disks.create_disk(disk, 1024)
    assert _filesystem_mb(disk) == 1024
    assert disk.stat().st_blocks * 512 < 20 * disks.MIB
    assert disk.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["data.raw"]


@pytest.mark.host
def test_a_disk_grows_and_its_file_system_with_it(tmp_path):
    disk = tmp_path / "data.raw"
    disks.create_disk(disk, 64)
    disks.grow_disk(disk, 256)
    assert _filesystem_mb(disk) == disks.disk_size_mb(disk) == 256


@pytest.mark.host
def test_growing_continues_after_a_crash_between_file_and_file_system(tmp_path):
    disk = tmp_path / "data.raw"
    disks.create_disk(disk, 64)
    os.truncate(disk, 256 * disks.MIB)
    disks.grow_disk(disk, 256)
    assert _filesystem_mb(disk) == 256


@pytest.mark.host
def test_a_disk_never_shrinks(tmp_path):
    disk = tmp_path / "data.raw"
    disks.create_disk(disk, 256)
    disks.grow_disk(disk, 64)
    assert disks.disk_size_mb(disk) == 256


@pytest.mark.host
def test_growing_a_disk_without_a_file_system_is_refused(tmp_path):
    disk = tmp_path / "data.raw"
    disk.write_bytes(b"\0" * disks.MIB)
    with pytest.raises(BackendUnavailable):
        disks.grow_disk(disk, 64)


@pytest.mark.parametrize("size", [0, 63, 1048577])
def test_sizes_out_of_range_are_refused(size):
    with pytest.raises(CapacityExceeded):
        disks.check_disk_size(size)


def test_the_disk_reserve_counts_as_used(tmp_path):
    free = disks.free_mb(tmp_path)
    disks.require_free_space(tmp_path, 1, 0)
    with pytest.raises(CapacityExceeded):
        disks.require_free_space(tmp_path, 1, free + 1)


def test_reset_disk_replaces_the_old_disk_only_when_the_new_one_is_complete(tmp_path, monkeypatch):
    disk = tmp_path / "data.raw"
    disk.write_bytes(b"old")

    def fails(*_arguments, **_options):
        raise BackendUnavailable("mkfs")

    with monkeypatch.context() as broken:
        broken.setattr(disks, "run_tool", fails)
        with pytest.raises(BackendUnavailable):
            disks.reset_disk(disk, 64)
    with monkeypatch.context() as full:
        full.setattr(disks, "free_mb", lambda _directory: 1)
        with pytest.raises(CapacityExceeded):
            disks.reset_disk(disk, 64)
    assert disk.read_bytes() == b"old"
    disks.reset_disk(disk, 64)
    assert _filesystem_mb(disk) == 64
    assert [path.name for path in tmp_path.iterdir()] == ["data.raw"]


def test_a_small_file_that_does_not_fit_leaves_the_former_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "status.json"
    disks.write_atomically(path, b"former")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BackendUnavailable):
        disks.write_atomically(path, b"later")
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"status.json": b"former"}
