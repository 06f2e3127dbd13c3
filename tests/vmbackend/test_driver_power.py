"""The driver contract: starting, stopping, pausing and their events. Every backend passes this file."""

from __future__ import annotations

import threading
import time

import pytest

from vmbackend.driver import EventKind, MachineEnd, MachineState, StopReason
from vmbackend.errors import (
    DeadlineExceeded,
    GuestUnreachable,
    InvalidMachineState,
    MachineExited,
)

from .conftest import Harness, Machine, read_content, write_content


def test_a_started_machine_becomes_ready_and_reports_it(harness: Harness):
    address = harness.running_machine()
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    harness.wait_event(address.machine_id, EventKind.READY)


def test_start_is_idempotent(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.pool.call(address, write_content)
    harness.driver.start(address.machine_id)
    assert harness.pool.call(address, read_content) == b"content"
    assert not [event for event in harness.events if event.kind is EventKind.STOPPED]


def test_destroy_stops_the_machine_and_keeps_its_definition(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.driver.destroy(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.OFF
    assert harness.wait_event(address.machine_id, EventKind.STOPPED).reason is StopReason.DESTROYED
    harness.driver.destroy(address.machine_id)


def test_a_guest_powers_off_on_request(machine: Machine):
    harness, address = machine.harness, machine.address
    assert harness.driver.shutdown(address.machine_id, harness.boot_seconds) is True
    assert harness.driver.state(address.machine_id) is MachineState.OFF
    assert harness.wait_event(address.machine_id, EventKind.STOPPED).reason is StopReason.SHUTDOWN
    assert harness.driver.shutdown(address.machine_id, 1.0) is True


def test_a_stopped_machine_starts_again(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.driver.shutdown(address.machine_id, harness.boot_seconds)
    seen = len(harness.events)
    harness.driver.start(address.machine_id)
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    harness.wait_event(address.machine_id, EventKind.READY, seen=seen)


def test_a_killed_machine_is_reported_as_crashed(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.kill(harness.driver, address.machine_id)
    assert harness.wait_event(address.machine_id, EventKind.STOPPED).reason is StopReason.CRASHED
    assert harness.driver.state(address.machine_id) is MachineState.OFF


def test_the_exit_code_of_the_main_process_arrives_before_the_stop(harness: Harness):
    harness.require_guest()
    spec = harness.spec(cmd=("/bin/sh", "-c", "exit 7"))
    harness.driver.prepare(spec)
    harness.driver.start(spec.id)
    stopped = harness.wait_event(spec.id, EventKind.STOPPED)
    exited = harness.wait_event(spec.id, EventKind.MAIN_EXITED)
    assert exited.exit_code == 7
    assert stopped.reason is StopReason.SHUTDOWN
    assert harness.events.index(exited) < harness.events.index(stopped)
    assert harness.driver.state(spec.id) is MachineState.OFF


def test_the_end_of_a_machine_is_known_before_its_events_are_delivered(harness: Harness):
    harness.require_guest()
    spec = harness.spec(cmd=("/bin/sh", "-c", "exit 7"))
    delivered = threading.Event()
    harness.driver.close()
    harness.driver = harness.make_driver()
    harness.driver.open(lambda event: delivered.wait(harness.boot_seconds))
    harness.driver.prepare(spec)
    harness.driver.start(spec.id)
    deadline = time.monotonic() + harness.boot_seconds
    while harness.driver.state(spec.id) is not MachineState.OFF:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    end = harness.driver.last_end(spec.id)
    delivered.set()
    assert end == harness.driver.last_end(spec.id) == MachineEnd(StopReason.SHUTDOWN, 7)
    harness.reopen_driver()
    assert harness.driver.last_end(spec.id).exit_code == 7
    harness.driver.delete(spec.id)
    assert harness.driver.last_end(spec.id).reason is StopReason.LOST


def test_waiting_for_a_machine_that_stops_first_raises_machine_exited(harness: Harness):
    spec = harness.spec()
    harness.driver.prepare(spec)
    harness.driver.start(spec.id)
    harness.driver.destroy(spec.id)
    with pytest.raises(MachineExited):
        harness.driver.wait_ready(spec.id, harness.boot_seconds)


def test_a_paused_machine_does_not_answer_and_continues_after_resume(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.pool.call(address, write_content)
    harness.driver.pause(address.machine_id)
    harness.driver.pause(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.PAUSED
    with pytest.raises((GuestUnreachable, DeadlineExceeded)):
        harness.pool.call(address, read_content, timeout=2.0)
    harness.driver.resume(address.machine_id)
    harness.driver.resume(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    assert harness.pool.call(address, read_content) == b"content"


def test_starting_a_paused_machine_resumes_it(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.driver.pause(address.machine_id)
    harness.driver.start(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING


def test_a_paused_machine_can_be_shut_down(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.driver.pause(address.machine_id)
    harness.driver.shutdown(address.machine_id, harness.boot_seconds)
    assert harness.driver.state(address.machine_id) is MachineState.OFF


def test_a_machine_that_is_off_cannot_be_paused_or_resumed(harness: Harness):
    spec = harness.spec()
    harness.driver.prepare(spec)
    with pytest.raises(InvalidMachineState):
        harness.driver.pause(spec.id)
    with pytest.raises(InvalidMachineState):
        harness.driver.resume(spec.id)


def test_a_machine_survives_the_driver_and_is_adopted_by_the_next(machine: Machine):
    harness, address = machine.harness, machine.address
    harness.pool.call(address, write_content)
    harness.reopen_driver()
    assert harness.driver.state(address.machine_id) is MachineState.RUNNING
    assert harness.pool.call(address, read_content) == b"content"
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    harness.kill(harness.driver, address.machine_id)
    assert harness.wait_event(address.machine_id, EventKind.STOPPED).reason is StopReason.CRASHED
