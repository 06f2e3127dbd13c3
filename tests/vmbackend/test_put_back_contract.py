"""Kept orphans that become machines again, with their files. Every backend passes this file; under QEMU one test of it
suffices, as only a start asks anything of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from vmbackend.driver import Driver, MachineSpec, MachineState
from vmbackend.errors import BackendError, InvalidMachineState, MachineNotFound
from vmbackend.fake.driver import FakeDriver
from vmbackend.orphans import KeptOrphan

from .conftest import Harness, read_content, write_content

WITHOUT_QEMU = pytest.mark.parametrize("harness", ["fake", "mock"], indirect=True)


@pytest.fixture(autouse=True)
def _empty(harness: Harness) -> Iterator[None]:
    yield
    for orphan in harness.driver.kept_orphans():
        harness.driver.remove_orphan(orphan.name)


def orphan_of(driver: Driver, spec: MachineSpec) -> KeptOrphan:
    """A machine that was never started, set aside."""
    driver.prepare(spec)
    driver.set_aside(spec.id)
    return driver.kept_orphans()[-1]


@WITHOUT_QEMU
def test_an_orphan_is_a_machine_again_with_its_identity(harness: Harness) -> None:
    spec, driver = harness.spec(epoch=2), harness.driver
    key = driver.prepare(spec).ssh_host_key
    driver.set_aside(spec.id)
    [kept] = driver.kept_orphans()
    for _ in range(2):
        driver.put_back(kept.name, 5, spec.ip)
        assert (driver.kept_orphans(), driver.epoch_of(spec.id)) == ((), 5)
    assert (driver.state(spec.id), driver.inventory().epochs[spec.id]) == (MachineState.ABSENT, 5)
    with pytest.raises(InvalidMachineState, match="another assignment"):
        driver.prepare(spec)
    assert driver.prepare(harness.spec(id=spec.id, ip=spec.ip, epoch=5)).ssh_host_key == key
    assert driver.state(spec.id) is MachineState.OFF


def test_its_files_are_there_when_it_starts_at_another_address(harness: Harness) -> None:
    harness.require_guest()
    address = harness.sleeping_machine()
    harness.driver.start(address.machine_id)
    harness.pool.call(address, write_content)
    harness.driver.sleep(address.machine_id)
    harness.driver.set_aside(address.machine_id)
    other = harness.running_machine(ip=address.ip)
    again = harness.spec(id=address.machine_id, epoch=2)
    harness.driver.put_back(harness.driver.kept_orphans()[0].name, 2, again.ip)
    assert harness.driver.state(other.machine_id) is MachineState.RUNNING
    folder = harness.driver.boot_log(again.id).parent
    if not isinstance(harness.driver, FakeDriver):  # whose files are all of this process
        assert folder.stat().st_mode & 0o077 == 0, "its former uid is the other machine's"
    started = harness.running_machine(id=again.id, ip=again.ip, epoch=2)
    assert (started.host_key, harness.pool.call(started, read_content)) == (address.host_key, b"content")
    assert harness.driver.state(other.machine_id) is MachineState.RUNNING


@WITHOUT_QEMU
def test_no_machine_wakes_from_the_memory_of_an_orphan(harness: Harness) -> None:
    address = harness.sleeping_machine()
    key = address.machine_id
    harness.driver.set_aside(key)
    harness.driver.put_back(harness.driver.kept_orphans()[0].name, 2, address.ip)
    harness.driver.prepare(harness.spec(id=key, ip=address.ip, epoch=2))
    assert harness.driver.state(key) is MachineState.OFF
    assert key not in harness.driver.inventory().saved


@WITHOUT_QEMU
def test_a_machine_of_the_same_id_is_not_overwritten(harness: Harness) -> None:
    spec = harness.spec()
    kept = orphan_of(harness.driver, spec)
    harness.driver.prepare(harness.spec(id=spec.id, ip=spec.ip, epoch=2))
    for epoch in (1, 2, 3):
        with pytest.raises(InvalidMachineState):
            harness.driver.put_back(kept.name, epoch, spec.ip)
    assert (harness.driver.kept_orphans(), harness.driver.epoch_of(spec.id)) == ((kept,), 2)


@WITHOUT_QEMU
@pytest.mark.parametrize("name", ["../escape.1.2", "a.1", "", "never.1.2"])
def test_an_orphan_that_there_is_not_is_not_found(harness: Harness, name: str) -> None:
    with pytest.raises(MachineNotFound):
        harness.driver.put_back(name, 1, "10.123.0.9")
    assert harness.driver.inventory().ids() == frozenset()


@WITHOUT_QEMU
def test_it_may_be_set_aside_again(harness: Harness) -> None:
    spec = harness.spec()
    kept = orphan_of(harness.driver, spec)
    harness.driver.put_back(kept.name, 4, spec.ip)
    harness.driver.set_aside(spec.id)
    [again] = harness.driver.kept_orphans()
    assert (again.machine_id, again.epoch, harness.driver.epoch_of(spec.id)) == (spec.id, 4, None)


class Died(BaseException):
    """The process ends here."""


@WITHOUT_QEMU
def test_a_death_before_the_rename_leaves_an_orphan(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = harness.spec()
    kept = orphan_of(harness.driver, spec)

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patched, suppress(Died):
        patched.setattr(Path, "rename", die)
        harness.driver.put_back(kept.name, 2, spec.ip)
    assert harness.driver.epoch_of(spec.id) is None
    [still] = harness.driver.kept_orphans()
    assert still.name == kept.name
    harness.driver.put_back(kept.name, 3, spec.ip)
    assert harness.driver.epoch_of(spec.id) == 3


@WITHOUT_QEMU
def test_one_whose_removal_has_begun_is_not_put_back(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = harness.spec()
    kept = orphan_of(harness.driver, spec)

    def die(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patched, suppress(Died):
        for module in ("vmbackend.fake.orphans", "vmbackend.libvirt.orphans"):
            patched.setattr(f"{module}.remove_tree", die)
        harness.driver.remove_orphan(kept.name)
    with pytest.raises(MachineNotFound):
        harness.driver.put_back(kept.name, 2, spec.ip)
    harness.driver.remove_orphan(kept.name)
    assert harness.driver.kept_orphans() == ()


@pytest.mark.parametrize("harness", ["mock"], indirect=True)
def test_an_address_of_another_network_is_refused(harness: Harness) -> None:
    """One record with such an address would keep the firewall of all machines from being made."""
    spec = harness.spec()
    kept = orphan_of(harness.driver, spec)
    with pytest.raises(BackendError, match="does not belong"):
        harness.driver.put_back(kept.name, 2, "10.99.0.5")
    assert harness.driver.kept_orphans() == (kept,)
