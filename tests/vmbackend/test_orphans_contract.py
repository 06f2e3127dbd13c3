"""Kept orphans: a machine that is set aside is ended, and its files stay. Every backend passes this file."""

from __future__ import annotations

import pytest

from vmbackend.driver import EventKind, MachineState
from vmbackend.errors import GuestPathNotFound, InvalidMachineState, MachineNotFound

from .conftest import Harness, read_content, write_content


def names(harness: Harness) -> list[str]:
    return [orphan.name for orphan in harness.driver.kept_orphans()]


def drop_all(harness: Harness) -> None:
    for name in names(harness):
        harness.driver.remove_orphan(name)


def test_a_machine_has_the_epoch_that_it_was_prepared_for(harness: Harness) -> None:
    spec = harness.spec(epoch=3)
    assert harness.driver.epoch_of(spec.id) is None
    harness.driver.prepare(spec)
    harness.reopen_driver()
    assert harness.driver.epoch_of(spec.id) == 3
    assert harness.driver.inventory().epochs[spec.id] == 3


def test_a_machine_of_nobody_takes_another_epoch_and_any_other_does_not(harness: Harness) -> None:
    nobodys = harness.spec(epoch=0)
    harness.driver.prepare(nobodys)
    harness.driver.prepare(harness.spec(id=nobodys.id, ip=nobodys.ip, epoch=2))
    assert harness.driver.epoch_of(nobodys.id) == 2
    for epoch in (1, 3, 0):
        with pytest.raises(InvalidMachineState, match="another assignment"):
            harness.driver.prepare(harness.spec(id=nobodys.id, ip=nobodys.ip, epoch=epoch))
    assert harness.driver.epoch_of(nobodys.id) == 2


@pytest.mark.parametrize("sleeps", [False, True])
def test_a_machine_that_is_set_aside_is_gone_and_its_files_are_kept(harness: Harness, sleeps: bool) -> None:
    address = harness.sleeping_machine(epoch=2) if sleeps else harness.running_machine(epoch=2)
    key = address.machine_id
    for _ in range(2):
        harness.driver.set_aside(key)
        assert harness.driver.state(key) is MachineState.ABSENT
        assert key not in harness.driver.inventory().ids()
    [kept] = harness.driver.kept_orphans()
    assert (kept.machine_id, kept.epoch, kept.size_bytes > 0) == (key, 2, True)
    assert harness.driver.epoch_of(key) is None
    harness.reopen_driver()
    assert names(harness) == [kept.name]
    for _ in range(2):
        harness.driver.remove_orphan(kept.name)
    assert names(harness) == []


def test_the_next_machine_of_its_id_has_a_disk_of_its_own(harness: Harness) -> None:
    harness.require_guest()
    address = harness.running_machine()
    harness.pool.call(address, write_content)
    harness.driver.set_aside(address.machine_id)
    again = harness.running_machine(id=address.machine_id, ip=address.ip, epoch=2)
    assert again.host_key != address.host_key
    with pytest.raises(GuestPathNotFound):
        harness.pool.call(again, read_content)
    harness.driver.set_aside(again.machine_id)
    assert [orphan.epoch for orphan in harness.driver.kept_orphans()] == [1, 2]
    drop_all(harness)


def test_the_end_of_a_machine_that_is_set_aside_is_reported(harness: Harness) -> None:
    address = harness.running_machine()
    harness.driver.set_aside(address.machine_id)
    harness.wait_event(address.machine_id, EventKind.STOPPED)
    drop_all(harness)


def test_nothing_is_set_aside_without_a_machine(harness: Harness) -> None:
    harness.driver.set_aside("never_created")
    assert names(harness) == []


@pytest.mark.parametrize("name", ["../escape", "a.1", "a.1.2/..", "", "a.b.c/d"])
def test_no_other_folder_is_removed_by_a_name(harness: Harness, name: str) -> None:
    with pytest.raises(MachineNotFound):
        harness.driver.remove_orphan(name)


def test_another_machine_that_has_its_address_by_now_keeps_its_port(harness: Harness) -> None:
    former = harness.spec()
    harness.driver.prepare(former)
    present = harness.running_machine(ip=former.ip)
    attached = present.machine_id in harness.driver.inventory().firewall
    harness.driver.set_aside(former.id)
    inventory = harness.driver.inventory()
    assert (present.machine_id in inventory.firewall, former.id in inventory.ids()) == (attached, False)
    assert harness.driver.state(present.machine_id) is MachineState.RUNNING
    drop_all(harness)
