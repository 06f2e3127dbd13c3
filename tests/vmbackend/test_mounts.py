"""Unmounting ends what was named and nothing else, also on a host whose mounts are shared."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmbackend import mounts
from vmbackend.libvirt import reach
from vmbackend.mounts import mounted_below, unmount

pytestmark = pytest.mark.host


def mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A file system whose mounts are shared, as those of a host with systemd are, with another one in it."""
    host = tmp_path / "host"
    host.mkdir()
    mount("-t", "tmpfs", "none", host)
    mount("--make-shared", host)
    (host / "sub").mkdir()
    mount("-t", "tmpfs", "none", host / "sub")
    (host / "sub" / "file").touch()
    yield host
    for point in reversed(mounted_below(tmp_path)):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def test_what_is_below_the_source_of_a_bind_stays_mounted(shared: Path, tmp_path: Path) -> None:
    point = tmp_path / "point"
    point.mkdir()
    mount("--rbind", shared, point)
    assert mounted_below(point) == [point, point / "sub"]
    unmount(mounted_below(point))
    assert mounted_below(tmp_path) == [shared, shared / "sub"]
    assert (shared / "sub" / "file").exists()


def test_so_does_what_is_covered_by_another_one(shared: Path, tmp_path: Path) -> None:
    point = tmp_path / "point"
    point.mkdir()
    mount("-t", "tmpfs", "none", point)
    mount("--rbind", shared, point)
    unmount(mounted_below(point))
    assert mounted_below(tmp_path) == [shared, shared / "sub"]


def test_a_file_system_in_a_state_folder_stays_when_its_machines_paths_go(
    shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reach, "MOUNTS", tmp_path / "run")
    state = shared / "private" / "state"
    (state / "disk").mkdir(parents=True)
    (shared / "private").chmod(0o700)
    seen = reach.reachable_directory(state, "x", "state")
    mount("-t", "tmpfs", "none", state / "disk")
    (state / "disk" / "file").touch()
    assert (seen / "disk" / "file").exists(), "machines see what the host mounts later"
    reach.unmount_all("x")
    assert mounted_below(tmp_path) == [shared, shared / "sub", state / "disk"]


@pytest.mark.parametrize("name", ["a\rb", "a b", "a\nb", "a\\040b", "a\x0bb", "ä", os.fsdecode(b"\xff")])
def test_a_mount_point_is_read_by_its_name(tmp_path: Path, name: str) -> None:
    point = tmp_path / name
    point.mkdir()
    mount("-t", "tmpfs", "none", point)
    try:
        assert mounted_below(tmp_path) == [point]
    finally:
        unmount([point])
    assert mounted_below(tmp_path) == []


def test_what_does_not_end_and_what_fails_stays_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, script in (("mount", "exec sleep 60"), ("umount", "echo busy >&2; exit 32")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(mounts, "UNMOUNT_SECONDS", 0.5)
    unmount([tmp_path / "point"])
    assert "did not end" in caplog.text
    assert "busy" in caplog.text
