"""libvirt's folders of running domains: what a machine's process may have done in them does nothing to root."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace

import pytest

from vmbackend.errors import BackendUnavailable
from vmbackend.uids import UidRange

pytest.importorskip("libvirt")
from vmbackend.libvirt.domain_folders import clean_folders, close_folders
from vmbackend.libvirt.starting import Confiner

pytestmark = pytest.mark.host
UID = 0x70FF0009
STATUS = "<domstatus state='running' pid='1'><libDir path='/other/lib/qemu/{0}'/><channelTargetDir path='/x/{0}'/>"
CLOSED = (0, UID, 0o710)


@pytest.fixture
def root() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="mvf", dir="/tmp"))
    made.chmod(0o711)
    (made / "run" / "qemu").mkdir(parents=True)
    (made / "lib" / "qemu" / "channel" / "target").mkdir(parents=True)
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)


def _folder(place: Path, name: str, *, monitor: bool = True) -> Path:
    """As libvirt leaves it to the machine's process."""
    folder = place / name
    folder.mkdir(mode=0o700)
    (folder / "master-key.aes").write_text("key")
    if monitor:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / "monitor.sock"))
    os.chown(folder, UID, UID)
    os.chown(folder / "master-key.aes", UID, UID)
    return folder


def _deepen(folder: Path) -> None:
    """Folders that `shutil.rmtree` and libvirt cannot remove: their paths are too long."""
    script = "import os,sys\nos.chdir(sys.argv[1])\nfor _ in range(3000):\n os.mkdir('abc'); os.chdir('abc')"
    subprocess.run(["python3", "-c", script, str(folder)], check=True)


def _access(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def _as_user(*command: str) -> int:
    user = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups")
    return subprocess.run([*user, *command], capture_output=True, check=False, timeout=20).returncode


def test_a_process_changes_no_name_in_the_folders_of_its_domain(root: Path) -> None:
    lib = root / "lib" / "qemu"
    folder = _folder(lib, "domain-3-mvm-abcdef-one")
    channels = _folder(lib / "channel" / "target", "domain-3-mvm-abcdef-one", monitor=False)
    another = _folder(lib, "domain-33-mvm-abcdef-two")
    assert _as_user("touch", str(folder / "new")) == 0
    close_folders(lib, 3, UID)
    assert _access(folder) == _access(channels) == CLOSED
    assert _access(another) == (UID, UID, 0o700)
    for command in (["touch", f"{folder}/more"], ["rm", "-f", f"{folder}/monitor.sock"], ["mkdir", f"{channels}/deep"]):
        assert _as_user(*command) != 0
    assert _as_user("cat", f"{folder}/master-key.aes") == 0


@pytest.mark.parametrize("change", ["monitor is a link", "monitor is a file", "key is a link", "folders"])
def test_a_process_that_changed_its_folder_before_does_not_run(root: Path, change: str) -> None:
    lib = root / "lib" / "qemu"
    folder = _folder(lib, "domain-3-one")
    if change == "folders":
        (folder / "deep").mkdir()
    else:
        name = "master-key.aes" if change == "key is a link" else "monitor.sock"
        (folder / name).unlink()
        (folder / name).touch() if change == "monitor is a file" else (folder / name).symlink_to("/etc/hostname")
    with pytest.raises(BackendUnavailable, match="has changed"):
        close_folders(lib, 3, UID)
    assert _access(folder) == CLOSED


def test_a_domain_without_a_folder_does_not_run(root: Path) -> None:
    with pytest.raises(BackendUnavailable, match="not found"):
        close_folders(root / "lib" / "qemu", -1, UID)


def test_a_monitor_that_is_a_link_is_gone_before_libvirt_is_opened(root: Path) -> None:
    lib = root / "lib" / "qemu"
    name, target = "domain-3-mvm-abcdef-one", _folder(lib, "domain-4-mvm-abcdef-two")
    (root / "run" / "qemu" / "one.xml").write_text(STATUS.format(name) + "</domstatus>")
    (root / "run" / "qemu" / "two.xml").write_text(STATUS.format(target.name) + "</domstatus>")
    (root / "run" / "qemu" / "cut.xml").write_text(STATUS)
    folder = _folder(lib, name, monitor=False)
    (folder / "monitor.sock").symlink_to(target / "monitor.sock")
    for _ in range(2):
        clean_folders(root)
        assert [path.name for path in folder.iterdir()] == ["master-key.aes"]
        assert (target / "monitor.sock").is_socket()
        assert _access(folder) == _access(target) == CLOSED


def test_folders_of_no_domain_are_removed_whatever_is_in_them(root: Path) -> None:
    lib, victim = root / "lib" / "qemu", root / "victim"
    victim.write_text("untouched")
    for place in (lib, lib / "channel" / "target"):
        folder = _folder(place, "domain-1-mvm-abcdef-one", monitor=False)
        (folder / "master-key.aes").unlink()
        (folder / "master-key.aes").symlink_to(victim)
        _deepen(folder)
        _folder(place, "removed-1", monitor=False)  # left by a death during a removal
    clean_folders(root)
    assert sorted(path.name for path in lib.iterdir()) == ["channel"]
    assert list((lib / "channel" / "target").iterdir()) == []
    assert victim.read_text() == "untouched"


def test_a_machine_whose_process_has_another_user_does_not_run() -> None:
    subnet = IPv4Network("10.9.0.0/24")
    folder = Path(tempfile.mkdtemp(prefix="mvf", dir="/tmp"))
    settings = SimpleNamespace(
        uids=UidRange(UID, subnet), is_test=False, instance="abcdef", machines_dir=folder, kit_dir=folder,
        images_dir=None, embed_root=folder,
    )  # fmt: skip
    try:
        with pytest.raises(BackendUnavailable, match="does not run as its user"):
            Confiner(settings).limit(SimpleNamespace(ip="10.9.0.5", id="one"), None)  # type: ignore[arg-type]
    finally:
        shutil.rmtree(folder)
