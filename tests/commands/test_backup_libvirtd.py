"""Backup, restore and removal of an instance whose machines are defined at a libvirtd. No machine is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import libvirt
import pytest

from supervise.backup.restore import restore_backup
from supervise.backup.save import back_up
from supervise.instance import Instance, InstanceError
from supervise.removal import remove_instance
from tests.commands.backups import ASLEEP, STOPPED, assert_is_restored, fill, running_machine, silent
from tests.vmbackend import libvirtd

pytestmark = pytest.mark.usefixtures("own_server")
# Of another instance, or of the host's own.
OTHER = "mvm-0a1b2c-ws_other"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("libvirtd")
    with libvirtd.running_libvirtd(folder):
        yield folder


@pytest.fixture
def instance(
    make_instance: Callable[[str], Instance], daemon: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Instance]:
    monkeypatch.delenv("PLATFORM_VM_BACKEND", raising=False)
    made = make_instance("original")
    fill(made)
    (made.state / "settings.env").write_text(f"PLATFORM_LOG_LEVEL=ERROR\nPLATFORM_LIBVIRT_URI={libvirtd.uri(daemon)}\n")
    for path in (made.state / "libvirt").rglob("*.xml"):
        path.unlink()
    with_definitions = [f"mvm-{made.id}-{ASLEEP}", f"mvm-{made.id}-{STOPPED}", OTHER]
    connection = libvirt.open(libvirtd.uri(daemon))
    for name in with_definitions:
        connection.defineXML(definition(name, f"{made.state}/machines/{name.rpartition('-')[2]}/data.raw"))
    yield made
    for each in connection.listAllDomains():
        each.undefine()
    connection.close()


def definition(name: str, disk: str) -> str:
    return (
        f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory><os><type arch='x86_64'>hvm</type></os>"
        f"<devices><disk type='file' device='disk'><source file='{disk}'/><target dev='vda' bus='virtio'/></disk>"
        "</devices></domain>"
    )


def disks(daemon: Path) -> dict[str, str]:
    """The disk in each definition."""
    connection = libvirt.open(libvirtd.uri(daemon))
    try:
        found = {each.name(): each.XMLDesc(0) for each in connection.listAllDomains()}
        return {name: xml.partition("source file='")[2].partition("'")[0] for name, xml in found.items()}
    finally:
        connection.close()


def test_machines_are_defined_again_with_the_paths_of_the_restored_folder(
    instance: Instance, daemon: Path, backups: Path, target: Path
) -> None:
    made = back_up(instance, str(backups), silent)
    names = {f"mvm-{instance.id}-{name}" for name in (ASLEEP, STOPPED)}
    assert {path.stem for path in (made / "definitions").iterdir()} == names
    remove_instance(instance, silent)
    assert set(disks(daemon)) == {OTHER}
    restore_backup(str(made), str(target), "", silent)
    assert_is_restored(target)
    found = disks(daemon)
    assert found.keys() == {OTHER, *names}
    assert {found[name] for name in names} == {f"{target}/machines/{name}/data.raw" for name in (ASLEEP, STOPPED)}
    assert not list((target / "libvirt").rglob("*.xml"))


def test_a_machine_that_runs_is_left_out_and_defined_no_more(
    instance: Instance, daemon: Path, backups: Path, target: Path
) -> None:
    with running_machine(instance.id, STOPPED):
        made = back_up(instance, str(backups), silent)
    remove_instance(instance, silent)
    restore_backup(str(made), str(target), "", silent)
    assert disks(daemon).keys() == {OTHER, f"mvm-{instance.id}-{ASLEEP}"}


def test_without_its_libvirtd_nothing_is_backed_up_or_restored_and_the_removal_says_what_may_be_left(
    instance: Instance, daemon: Path, backups: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = back_up(instance, str(backups), silent)
    monkeypatch.setenv("PLATFORM_LIBVIRT_URI", libvirtd.uri(daemon / "nowhere"))
    with pytest.raises(InstanceError, match="libvirtd at"):
        back_up(instance, str(backups), silent)
    with pytest.raises(InstanceError, match="libvirtd at"):
        restore_backup(str(made), str(target), "", silent)
    assert not target.exists()
    said: list[str] = []
    remove_instance(instance, said.append)
    assert [line for line in said if "may remain" in line]
    assert not instance.state.exists()
