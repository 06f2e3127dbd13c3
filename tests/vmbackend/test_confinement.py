"""What a machine's user reaches on the host: files, directories, mounts, sockets. No machine runs here."""

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
from vmbackend.uids import UidRange, default_first_uid

pytest.importorskip("libvirt")
from vmbackend.libvirt.confinement import Confinement
from vmbackend.libvirt.domainxml import domain_xml
from vmbackend.libvirt.network import Network
from vmbackend.libvirt.reach import MOUNTS, ReachablePaths, unmount_all
from vmbackend.libvirt.record import MachineDir

from .libvirt_factory import free_subnet
from .test_domainxml import DEFINITION

pytestmark = pytest.mark.host
INSTANCE = f"c{os.getpid() % 0xFFFFF:05x}"
SUBNET = IPv4Network("10.9.0.0/24")
UIDS = UidRange(default_first_uid(SUBNET), SUBNET)
ONE, TWO = "10.9.0.5", "10.9.0.6"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that only root can search, as a home directory of root is."""
    made = Path(tempfile.mkdtemp(prefix="mvc", dir="/tmp"))
    yield made
    unmount_all(INSTANCE)
    shutil.rmtree(made)


@pytest.fixture
def confinement(folder: Path) -> Confinement:
    made = _confinement(folder)
    made.open(kvm=False)
    return made


def _confinement(folder: Path) -> Confinement:
    settings = SimpleNamespace(
        instance=INSTANCE,
        uids=UIDS,
        is_test=False,
        machines_dir=folder / "m",
        kit_dir=folder / "kit",
        images_dir=folder / "images",
    )
    return Confinement(settings)  # type: ignore[arg-type]


def _machine(confinement: Confinement, folder: Path, name: str, ip: str) -> MachineDir:
    """A machine's files as earlier versions have left them: everything is root's."""
    files = MachineDir(folder / "m", name)
    files.create()
    for path in (files.data_disk, files.config, files.host_key, files.memory):
        path.write_text(name)
        path.chmod(0o600)
    confinement.give_files(files, ip)
    return files


def _as_user(uid: int, *command: str) -> subprocess.CompletedProcess[str]:
    user = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--bounding-set=-all")
    return subprocess.run([*user, *command], capture_output=True, text=True, check=False, timeout=120)


def _may(uid: int, what: str, path: Path) -> bool:
    return _as_user(uid, "test", what, str(path)).returncode == 0


def test_a_machine_reads_and_writes_its_own_disk_and_pipes_and_reads_its_configuration(confinement, folder):
    files, uid = _machine(confinement, folder, "one", ONE), UIDS.machine(ONE)
    for path in (files.data_disk, *files.pipes):
        seen = confinement.path_for(path)
        assert _may(uid, "-r", seen)
        assert _may(uid, "-w", seen)
    assert _may(uid, "-r", confinement.path_for(files.config))
    assert not _may(uid, "-w", confinement.path_for(files.config))


def test_a_machine_reads_neither_another_ones_files_nor_the_platforms_own(confinement, folder):
    one, two = _machine(confinement, folder, "one", ONE), _machine(confinement, folder, "two", TWO)
    uid = UIDS.machine(ONE)
    for path in (two.path, two.data_disk, two.config, two.memory, two.pipes[0]):
        seen = confinement.path_for(path)
        assert not _may(uid, "-r", seen), path
        assert not _may(uid, "-w", seen), path
    for path in (one.host_key, one.memory):
        assert not _may(uid, "-r", confinement.path_for(path))
    assert _as_user(uid, "ls", str(confinement.path_for(folder / "m"))).returncode != 0
    assert _as_user(uid, "rm", "-f", str(confinement.path_for(one.data_disk))).returncode != 0


def test_files_of_another_address_change_hands(confinement, folder):
    files = _machine(confinement, folder, "one", ONE)
    confinement.give_files(files, TWO)
    assert not _may(UIDS.machine(ONE), "-r", confinement.path_for(files.data_disk))
    assert _may(UIDS.machine(TWO), "-w", confinement.path_for(files.data_disk))


def test_the_directory_of_an_orphan_is_closed_before_its_uid_is_used_again(confinement, folder):
    orphan = _machine(confinement, folder, "orphan", ONE)
    _machine(confinement, folder, "one", ONE)
    assert not _may(UIDS.machine(ONE), "-r", confinement.path_for(orphan.data_disk))


def test_a_uid_is_not_used_again_while_a_process_has_it(confinement, folder):
    uid = UIDS.machine(ONE)
    with subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "cat"],
                          stdin=subprocess.PIPE) as former:  # fmt: skip
        while (Path("/proc") / str(former.pid)).stat().st_uid != uid:
            assert former.poll() is None
        with pytest.raises(BackendUnavailable):
            _machine(confinement, folder, "one", ONE)
        assert former.stdin is not None
        former.stdin.close()
    _machine(confinement, folder, "one", ONE)


def test_shared_files_are_readable_but_not_writable_for_every_machine(confinement, folder):
    kernel = folder / "kit" / "v1" / "vmlinux"
    kernel.parent.mkdir(mode=0o700)
    kernel.write_text("kernel")
    kernel.chmod(0o600)
    seen = confinement.readable_file(kernel)
    assert _may(UIDS.machine(ONE), "-r", seen)
    assert not _may(UIDS.machine(ONE), "-w", seen)
    with pytest.raises(OSError, match="Read-only"):  # not even by root
        seen.write_text("other")


def test_a_directory_that_is_reachable_is_not_mounted(folder):
    folder.chmod(0o711)
    paths = ReachablePaths(INSTANCE, {"machines": folder / "m"}, read_only=frozenset())
    paths.open()
    assert paths.path_for(folder / "m" / "one") == folder / "m" / "one"
    assert not (MOUNTS / INSTANCE).exists()


def test_paths_of_an_instance_that_was_restored_elsewhere_are_those_of_its_files_now(folder):
    """As saved memory names them: of the folder in which it was saved, which may be gone."""
    folder.chmod(0o711)
    (folder / "m" / "ws_one").mkdir(parents=True)
    (folder / "k" / "hash").mkdir(parents=True)
    paths = ReachablePaths(INSTANCE, {"machines": folder / "m", "kit": folder / "k"}, read_only=frozenset())
    paths.open()
    assert paths.path_for(Path("/old/place/machines/ws_one/data.raw")) == folder / "m" / "ws_one" / "data.raw"
    assert paths.path_for(Path("/old/cache/kit/hash/vmlinuz")) == folder / "k" / "hash" / "vmlinuz"
    for other in ("/old/place/machines/ws_two/data.raw", "/dev/null", "/usr/share/seabios/bios.bin"):
        assert paths.path_for(Path(other)) == Path(other)


def test_mounts_are_made_again_after_a_restart_of_the_host_at_the_same_paths(confinement, folder):
    seen = confinement.path_for(_machine(confinement, folder, "one", ONE).data_disk)
    unmount_all(INSTANCE)
    assert not seen.exists()
    again = _confinement(folder)
    again.open(kvm=False)
    assert again.path_for(folder / "m/one/data.raw") == seen
    assert seen.exists()


def test_a_mount_that_a_death_left_writable_is_read_only_after_the_next_open(confinement, folder):
    kernel = folder / "kit" / "vmlinux"
    kernel.write_text("kernel")
    seen = confinement.readable_file(kernel)
    unmount_all(INSTANCE)
    seen.parent.mkdir(parents=True)
    subprocess.run(["mount", "--bind", str(folder / "kit"), str(seen.parent)], check=True)
    seen.write_text("kernel")
    again = _confinement(folder)
    again.open(kvm=False)
    assert again.readable_file(kernel) == seen
    with pytest.raises(OSError, match="Read-only"):
        seen.write_text("other")


def test_a_mount_of_a_directory_that_was_replaced_shows_the_new_one(confinement, folder):
    shutil.rmtree(folder / "m")
    again = _confinement(folder)
    again.open(kvm=False)
    (folder / "m" / "new").touch()
    assert again.path_for(folder / "m" / "new").exists()


def test_saved_memory_of_an_earlier_version_continues_as_the_machines_user(confinement, folder):
    files = _machine(confinement, folder, "one", ONE)
    image = folder / "images" / "images" / "abc" / "rootfs.squashfs"
    image.parent.mkdir(parents=True, mode=0o700)
    image.write_text("image")
    former = domain_xml(
        SimpleNamespace(
            **{name: getattr(DEFINITION, name) for name in DEFINITION.__dataclass_fields__}
            | {
                "label": None,
                "data_layers": (("raw", files.data_disk),),
                "console_pipe": files.console_pipe,
                "base_disk": image,
            }
        )
    )
    xml = confinement.confined_xml(former, ONE, {})
    assert xml is not None
    assert f"<label>+{UIDS.machine(ONE)}:+{UIDS.machine(ONE)}</label>" in xml
    for path in (files.data_disk, files.console_pipe, image):
        assert f'"{path}"' not in xml
        assert f'"{confinement.path_for(path)}"' in xml
    assert _may(UIDS.machine(ONE), "-r", confinement.path_for(image))
    assert confinement.confined_xml(xml, ONE, {}) is None


def test_saved_memory_names_the_files_where_they_are_reachable_today(confinement, folder):
    files = _machine(confinement, folder, "one", ONE)
    former = domain_xml(DEFINITION).replace("/m/m1/data.raw", str(confinement.path_for(files.data_disk)))
    folder.chmod(0o711)
    today = _confinement(folder)
    today.open(kvm=False)
    xml = today.confined_xml(former, ONE, {})
    assert xml is not None
    assert f'"{files.data_disk}"' in xml


def test_a_process_of_a_machine_opens_no_connection_to_the_host():
    subnet = free_subnet()
    uids = UidRange(default_first_uid(subnet), subnet)
    settings = SimpleNamespace(
        instance=INSTANCE,
        subnet=subnet,
        gateway=str(subnet.network_address + 1),
        address="",
        dns=("192.0.2.53",),
        machines_dir=Path(tempfile.mkdtemp(prefix="mvc", dir="/tmp")),
        allowed_private=(),
        uids=uids,
    )
    network = Network(settings)  # type: ignore[arg-type]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        send = ("bash", "-c", f"echo x > /dev/udp/127.0.0.1/{server.getsockname()[1]}")
        try:
            network.install([])
            taken_over = _as_user(uids.machine(str(subnet.network_address + 9)), *send)
            assert "Operation not permitted" in taken_over.stderr
            assert _as_user(uids.first, *send).returncode == 0
        finally:
            network.uninstall()
            shutil.rmtree(settings.machines_dir)


def test_every_start_leaves_the_same_owners_and_modes(confinement, folder):
    files, uid = _machine(confinement, folder, "one", ONE), UIDS.machine(ONE)
    for _ in range(2):
        confinement.give_files(files, ONE)
        found = {
            p.name: (p.stat().st_uid, p.stat().st_gid, stat.S_IMODE(p.stat().st_mode)) for p in files.path.iterdir()
        }
        assert found["data.raw"] == (uid, uid, 0o600)
        assert found["config"] == (0, uid, 0o640)
        assert {found[pipe.name] for pipe in files.pipes} == {(0, uid, 0o660)}
        assert {found[name] for name in ("host_key", "memory")} == {(0, 0, 0o600)}
