"""Files of earlier versions, which other users could read: a lock that another user can open can be kept by it."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest

from vmbackend.locks import try_lock

pytest.importorskip("libvirt")
from vmbackend.libvirt.connection import _lock_root, _restrict_root

OURS = (
    "owner.lock",
    "etc",
    "etc/qemu.conf",
    "run",
    "run/qemu",
    "run/qemu/driver.pid",
    "log/qemu/x.log",
    "lib/qemu/save",
)
OF_MACHINES = ("lib/qemu/domain-1-m", "lib/qemu/domain-1-m/master-key.aes", "lib/qemu/channel/target")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """As an embedded libvirt left it under a umask of 022."""
    for name in (*OURS, *OF_MACHINES):
        path = tmp_path / name
        if path.suffix:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        else:
            path.mkdir(parents=True, exist_ok=True)
    (tmp_path / "link").symlink_to("/etc/passwd")
    for path in tmp_path.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    return tmp_path


def test_a_root_of_an_earlier_version_is_closed_to_other_users(root: Path) -> None:
    others = mode_of(Path("/etc/passwd"))
    _restrict_root(root)
    assert [name for name in OURS if mode_of(root / name) & 0o077] == []
    assert [mode_of(root / name) for name in ("lib", "lib/qemu")] == [0o711, 0o711]
    assert mode_of(Path("/etc/passwd")) == others
    # These belong to machines: vmbackend/libvirt/domain_folders.py gives them their modes.
    assert [mode_of(root / name) for name in OF_MACHINES] == [0o755, 0o644, 0o755]


def test_the_lock_of_a_root_is_its_owners_alone(root: Path) -> None:
    lock = _lock_root(root, time.monotonic())
    assert mode_of(root / "owner.lock") == 0o600
    lock.close()


def test_other_lock_files_are_their_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.touch()
    path.chmod(0o644)
    with try_lock(path) as taken:
        assert taken
        assert mode_of(path) == 0o600
