"""Memory of a machine that is loaded as another one, and as itself, under libvirt."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from vmbackend.driver import Boot, MachineSpec, MachineState, Workload
from vmbackend.errors import BackendError, CopyUnproven, SnapshotIncompatible, SnapshotNotFound
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt import message_exchange
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.firewall import mac_for
from vmbackend.libvirt.store import Store, StoredMemory

from .conftest import Harness
from .test_sleep_contract import CLOCK_ERROR, read_clocks

pytestmark = pytest.mark.vm

# The address of the link comes a moment after the link.
WHO = """
until ip -6 -o address show eth0 | grep -q fe80; do sleep 0.1; done
cat /proc/sys/kernel/random/boot_id /run/kit/generation /sys/class/net/eth0/address
ip -4 -o address show eth0 | awk '{print $4}'
ip -6 -o address show eth0 | awk '{print $4}'
head -c 1024 /dev/urandom | md5sum
cat /dev/shm/nonce; hostname; echo $OWN
"""
NONCE = "cat /proc/sys/kernel/random/uuid > /dev/shm/nonce; exec sleep 9999"
PARENT = Boot(
    hostname="parent",
    env={"OWN": "parent"},
    workloads=(Workload("nonce", ("sh", "-c", NONCE)),),
    wait_for_init=True,
)


@dataclass(frozen=True)
class Parent:
    """A machine that goes on, and an entry of its memory and a copy of its disk at one instant."""

    harness: Harness
    address: GuestAddress
    entry: StoredMemory
    disk: Path

    @property
    def driver(self) -> LibvirtDriver:
        assert isinstance(self.harness.driver, LibvirtDriver)
        return self.harness.driver

    def copy_of(self, spec: MachineSpec) -> GuestAddress:
        """A machine that is off and has the disk."""
        identity = self.driver.prepare(spec)
        shutil.copyfile(self.disk, self.driver._inventory.machine_dir(spec.id).data_disk)
        return GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)

    def load(self, machine_id: str, entry: StoredMemory | None = None) -> None:
        driver = self.driver
        target, record = driver._find_machine(machine_id)
        files = driver._inventory.machine_dir(machine_id)
        hooks = driver._confiner.hooks(files, record, driver._attachment.port_of(record))
        driver._power.load(entry or self.entry, target, files, hooks)
        driver.wait_ready(machine_id, self.harness.boot_seconds)

    def who(self, address: GuestAddress) -> list[str]:
        result = self.harness.pool.call(address, lambda session: session.execute(WHO, timeout=120.0), 150)
        return str(result.stdout.decode()).splitlines()


def save(harness: Harness, folder: Path, spec: MachineSpec) -> Parent:
    driver = harness.driver
    assert isinstance(driver, LibvirtDriver)
    identity = driver.prepare(spec)
    driver.start(spec.id)
    driver.wait_ready(spec.id, harness.boot_seconds)
    address = GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)
    await_nonce = "until [ -s /dev/shm/nonce ]; do sleep 0.1; done"
    harness.pool.call(address, lambda session: session.execute(await_nonce, timeout=120.0), 150)
    driver.sleep(spec.id)
    files = driver._inventory.machine_dir(spec.id)
    store = Store(driver._settings.machines_dir)
    store.open()
    entry = store.add("snap_1", {}, lambda path: shutil.copyfile(files.memory, path) and None)
    shutil.copyfile(files.data_disk, folder / "disk")
    driver.start(spec.id)
    return Parent(harness, address, entry, folder / "disk")


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parent]:
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    harness: Harness = factory.make_harness(tmp_path_factory.mktemp("copies"))
    try:
        yield save(harness, tmp_path_factory.mktemp("saved"), replace(harness.spec(), boot=PARENT))
    finally:
        harness.close()


@pytest.fixture
def copy(parent: Parent) -> Iterator[GuestAddress]:
    spec = replace(parent.harness.spec(), boot=Boot(hostname="copy", env={"OWN": "copy"}))
    yield parent.copy_of(spec)
    parent.driver.delete(spec.id)


def test_a_copy_has_its_own_identity_and_the_programs_of_its_parent(parent: Parent, copy: GuestAddress) -> None:
    """As has another copy of the same entry; the parent goes on untouched."""
    before = parent.who(parent.address)
    other_spec = replace(parent.harness.spec(), boot=Boot(hostname="other", env={"OWN": "other"}))
    other = parent.copy_of(other_spec)
    for each in (copy, other):
        parent.load(each.machine_id)
    addresses, names = (parent.address, copy, other), ("parent", "copy", "other")
    found = [parent.who(address) for address in addresses]
    for address, seen, name in zip(addresses, found, names, strict=True):
        assert seen[2:4] == [mac_for(address.ip), f"{address.ip}/24"]
        assert seen[7:] == [name, name]
    for place in range(6):
        assert len({seen[place] for seen in found}) == 3, [seen[place] for seen in found]
    assert len({seen[6] for seen in found}) == 1, "the nonce of the same memory"
    assert [before[place] for place in (0, 1, 2, 3, 4, 6)] == [found[0][place] for place in (0, 1, 2, 3, 4, 6)]
    before_asked, clock, after = read_clocks(parent.harness, copy)
    assert before_asked - CLOCK_ERROR < clock < after + CLOCK_ERROR
    parent.driver.delete(other_spec.id)


def say(line: str) -> Callable[..., Iterator[list[bytes]]]:
    """The answers of a guest that sends this line."""
    return lambda *_: iter([line.encode().split()])


LIES = {
    "another generation": "renewed 8f14e45f-ceea-467f-a2d9-0b6a3b1f0d3a freeze entropy 1",
    "a failure": "failed mac Operation not permitted",
    "another word": "loaded",
}


@pytest.mark.parametrize("lie", [*LIES.values(), None], ids=[*LIES, "silence"])
def test_a_copy_that_does_not_prove_its_identity_is_ended_before_it_has_a_network(
    parent: Parent, copy: GuestAddress, monkeypatch: pytest.MonkeyPatch, lie: str | None
) -> None:
    connected: list[str] = []
    monkeypatch.setattr(parent.driver._network, "connect", connected.append)
    answers = say(lie) if lie else lambda *_: iter([])
    monkeypatch.setattr(message_exchange, "read_answers", answers)
    with pytest.raises(CopyUnproven):
        parent.load(copy.machine_id)
    assert parent.driver.state(copy.machine_id) is MachineState.OFF
    assert connected == []
    assert not parent.driver._inventory.machine_dir(copy.machine_id).loading.exists()


def test_memory_that_was_altered_or_removed_or_is_of_other_devices_is_not_loaded(
    parent: Parent, copy: GuestAddress, tmp_path: Path
) -> None:
    def refuse(entry: StoredMemory, error: type[BackendError]) -> None:
        with pytest.raises(error):
            parent.load(copy.machine_id, entry)
        assert parent.driver.state(copy.machine_id) is MachineState.OFF

    whole = parent.entry.memory.read_bytes()
    entry = replace(parent.entry, path=tmp_path)
    refuse(entry, SnapshotNotFound)
    middle = len(whole) // 2
    entry.memory.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    refuse(entry, SnapshotIncompatible)
    entry.memory.write_bytes(whole.replace(b"<memballoon", b"<memballoom", 1)[:4096])
    refuse(entry, SnapshotIncompatible)


def test_a_machine_whose_own_memory_is_loaded_again_stays_who_it_was(parent: Parent) -> None:
    """Its boot id, generation and randomness are new; it runs from its disk of then."""
    before = parent.who(parent.address)
    parent.driver.destroy(parent.address.machine_id)
    files = parent.driver._inventory.machine_dir(parent.address.machine_id)
    shutil.copyfile(parent.disk, files.data_disk)
    parent.load(parent.address.machine_id)
    after = parent.who(parent.address)
    assert [after[place] != before[place] for place in range(9)] == [True, True, False, False, False, True] + [
        False
    ] * 3
