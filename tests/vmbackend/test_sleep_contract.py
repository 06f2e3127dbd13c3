"""The driver contract: sleep, wake, reset disks and undefined machines. Every backend passes this file."""

from __future__ import annotations

import re
import time

import pytest

from vmbackend.driver import EventKind, MachineState, StopReason
from vmbackend.errors import CapacityExceeded, InvalidMachineState, SavedMemoryUnusable
from vmbackend.guest.session import GuestAddress

from .conftest import Harness, Machine

CLOCK_ERROR = 0.5


async def _put(session):
    async def content():
        yield b"content"

    await session.write("/file", content())
    await session.sync()


async def _get(session):
    return b"".join([chunk async for chunk in session.read("/file")])


async def _list_root(session):
    entries, _ = await session.list_directory("/")
    return [entry.name for entry in entries]


def read_secret(harness: Harness, address: GuestAddress) -> str:
    """The secret that SECRET_COMMAND holds in memory."""
    script = "rm -f reply; until [ -p request ]; do sleep 0.1; done; echo > request; "
    script += "while ! grep -q . reply; do sleep 0.1; done 2>/dev/null; cat reply"
    result = harness.pool.call(address, lambda session: session.execute(script, working_dir="/", timeout=120.0), 150)
    secret = str(result.stdout.decode().strip())
    assert secret
    return secret


def wake(harness: Harness, address: GuestAddress) -> None:
    harness.driver.start(address.machine_id)
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)


def read_clocks(harness: Harness, address: GuestAddress) -> tuple[float, float, float]:
    """The guest's clock, and the host's before and after. busybox's `date` has whole seconds only, adjtimex more."""
    command = "if [ -e /bin/adjtimex ]; then adjtimex; else date '+tv_sec: %s tv_usec: %6N'; fi"
    before = time.time()
    result = harness.pool.call(address, lambda session: session.execute(command), 150)
    after = time.time()
    fields = dict(re.findall(r"(tv_u?sec):\s+(\d+)", result.stdout.decode()))
    return before, int(fields["tv_sec"]) + int(fields["tv_usec"]) / 1e6, after


def test_memory_survives_a_sleep(machine: Machine):
    harness, address = machine.harness, machine.address
    secret = read_secret(harness, address)
    harness.driver.sleep(address.machine_id)
    wake(harness, address)
    harness.driver.resync_guest(address.machine_id)
    assert read_secret(harness, address) == secret
    assert harness.driver.inventory().saved == frozenset()


def test_a_sleeping_machine_is_asleep_and_reports_saved(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.driver.sleep(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.ASLEEP
    assert harness.wait_event(address.machine_id, EventKind.STOPPED).reason is StopReason.SAVED
    inventory = harness.driver.inventory()
    assert inventory.domains[address.machine_id] is MachineState.ASLEEP
    assert inventory.saved == {address.machine_id}
    harness.driver.sleep(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.ASLEEP


def test_a_woken_machine_runs_and_its_saved_memory_is_removed(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.driver.sleep(address.machine_id)
    wake(harness, address)
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    assert harness.driver.inventory().saved == frozenset()


def test_the_clock_is_correct_after_a_wake_and_resync(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.require_guest()
    harness.driver.sleep(address.machine_id)
    time.sleep(harness.sleep_seconds)
    wake(harness, address)
    harness.driver.resync_guest(address.machine_id)
    before, guest, after = read_clocks(harness, address)
    assert before - CLOCK_ERROR < guest < after + CLOCK_ERROR


def test_a_paused_machine_sleeps_and_wakes_running(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.driver.pause(address.machine_id)
    harness.driver.sleep(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.ASLEEP
    wake(harness, address)
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    read_secret(harness, address)


def test_a_machine_can_sleep_repeatedly(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.require_guest()
    for _ in range(3):
        harness.driver.sleep(address.machine_id)
        wake(harness, address)
        harness.driver.resync_guest(address.machine_id)
    read_secret(harness, address)


def test_corrupt_memory_is_dropped_and_the_next_start_is_a_cold_boot(harness: Harness):
    address = harness.running_machine()
    if not harness.without_guest:
        harness.pool.call(address, _put)
    harness.driver.sleep(address.machine_id)
    harness.corrupt_memory(harness.driver, address.machine_id)
    with pytest.raises(SavedMemoryUnusable):
        harness.driver.start(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.OFF
    assert harness.driver.inventory().saved == frozenset()
    wake(harness, address)
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    assert harness.pool.call(address, _get) == b"content"


def test_a_machine_keeps_running_when_its_memory_does_not_fit_on_the_disk(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.fill_disk(harness.driver)
    with pytest.raises(CapacityExceeded):
        harness.driver.sleep(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    assert harness.driver.inventory().saved == frozenset()


@pytest.mark.parametrize("method", ["destroy", "shutdown", "delete"])
def test_ending_a_sleeping_machine_removes_its_memory(harness: Harness, method: str):
    address = harness.sleeping_machine()
    if method == "shutdown":
        assert harness.driver.shutdown(address.machine_id, 1.0) is True
    else:
        getattr(harness.driver, method)(address.machine_id)
    wanted = MachineState.ABSENT if method == "delete" else MachineState.OFF
    assert harness.driver.state(address.machine_id) is wanted
    assert harness.driver.inventory().saved == frozenset()
    if method == "delete":
        assert address.machine_id not in harness.driver.inventory().ids()


def test_operations_on_running_machines_are_refused_while_asleep(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.driver.sleep(address.machine_id)
    for method in ("pause", "resume", "resync_guest", "reset_disk"):
        with pytest.raises(InvalidMachineState):
            getattr(harness.driver, method)(address.machine_id)
    with pytest.raises(InvalidMachineState):
        harness.driver.prepare(harness.spec(id=address.machine_id, ip=address.ip))
    assert harness.driver.state(address.machine_id) is MachineState.ASLEEP


def test_a_machine_that_is_off_can_neither_sleep_nor_resync(harness: Harness):
    spec = harness.spec()
    harness.driver.prepare(spec)
    for method in ("sleep", "resync_guest"):
        with pytest.raises(InvalidMachineState):
            getattr(harness.driver, method)(spec.id)


def test_a_paused_machine_can_resync_after_resume(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.require_guest()
    harness.driver.pause(address.machine_id)
    with pytest.raises(InvalidMachineState):
        harness.driver.resync_guest(address.machine_id)
    harness.driver.resume(address.machine_id)
    harness.driver.resync_guest(address.machine_id)


def test_a_sleeping_machine_survives_the_driver(machine: Machine):
    harness, address = machine.harness, machine.address
    secret = read_secret(harness, address)
    harness.driver.sleep(address.machine_id)
    harness.reopen_driver()
    assert harness.driver.state(address.machine_id) is MachineState.ASLEEP
    wake(harness, address)
    assert read_secret(harness, address) == secret


def test_reset_disk_empties_the_disk_and_keeps_the_host_key(harness: Harness):
    address = harness.running_machine()
    if not harness.without_guest:
        harness.pool.call(address, _put)
    with pytest.raises(InvalidMachineState):
        harness.driver.reset_disk(address.machine_id)
    harness.driver.shutdown(address.machine_id, harness.boot_seconds)
    harness.driver.reset_disk(address.machine_id)
    wake(harness, address)
    assert "file" not in harness.pool.call(address, _list_root)
    harness.driver.shutdown(address.machine_id, harness.boot_seconds)
    identity = harness.driver.prepare(harness.spec(id=address.machine_id, ip=address.ip))
    assert identity.ssh_host_key == address.host_key


def test_prepare_restores_an_undefined_machine_with_its_files(harness: Harness):
    address = harness.running_machine()
    if not harness.without_guest:
        harness.pool.call(address, _put)
    harness.driver.shutdown(address.machine_id, harness.boot_seconds)
    harness.undefine(harness.driver, address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.ABSENT
    identity = harness.driver.prepare(harness.spec(id=address.machine_id, ip=address.ip))
    assert identity.ssh_host_key == address.host_key
    wake(harness, address)
    assert harness.pool.call(address, _get) == b"content"


def test_the_saved_memory_of_an_undefined_machine_is_an_orphan(harness: Harness):
    address = harness.sleeping_machine()
    harness.undefine(harness.driver, address.machine_id)
    assert address.machine_id in harness.driver.inventory().saved
    harness.driver.delete(address.machine_id)
    assert address.machine_id not in harness.driver.inventory().ids()


def test_an_undefined_machine_that_slept_is_prepared_as_off(harness: Harness):
    address = harness.sleeping_machine()
    harness.undefine(harness.driver, address.machine_id)
    harness.driver.prepare(harness.spec(id=address.machine_id, ip=address.ip))
    assert harness.driver.state(address.machine_id) is MachineState.OFF
    assert harness.driver.inventory().saved == frozenset()


def test_capacity_reports_snapshots_and_boot_id(harness: Harness):
    capacity = harness.driver.capacity()
    assert capacity.snapshots
    assert capacity.boot_id
    assert harness.driver.capacity().boot_id == capacity.boot_id
