"""The driver contract: machines that belong to nobody until `assign`. Every backend with guests passes this file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vmbackend.driver import Boot, EventKind, MachineSpec, MachineState
from vmbackend.errors import BackendError, GuestUnreachable, InvalidMachineState, MachineNotFound
from vmbackend.fake.driver import FakeDriver
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt import power
from vmbackend.policy import NetworkPolicy

from .conftest import Harness

CLOSED = NetworkPolicy(allow_internet=False, ingress_ports=(65535,))
# It leaves a file when it has begun.
PROGRAM = ("/bin/sh", "-c", "echo $OWN > begun; exec sleep 9999")


def waiting(harness: Harness) -> tuple[MachineSpec, GuestAddress]:
    """A paused machine that was ready, and what it will be."""
    harness.require_guest()
    spec = harness.spec(env={"OWN": "yes"}, cmd=PROGRAM, working_dir="/")
    nobody = replace(spec, network=CLOSED, boot=Boot(hostname="nobody", unassigned=True))
    identity = harness.driver.prepare(nobody)
    harness.driver.start(spec.id)
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    address = GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)
    assert output(harness, address, "echo $OWN; ls begun || true") == ""
    harness.pool.close()
    harness.driver.pause(spec.id)
    return spec, address


def output(harness: Harness, address: GuestAddress, script: str) -> str:
    result = harness.pool.call(address, lambda session: session.execute(script, working_dir="/"), 150)
    return result.stdout.decode().strip()


def becomes_its_owners(harness: Harness, spec: MachineSpec, address: GuestAddress) -> None:
    driver, seen = harness.driver, len(harness.events)
    driver.assign(spec)
    driver.wait_ready(spec.id, harness.boot_seconds)
    harness.wait_event(spec.id, EventKind.READY, seen=seen)
    assert driver.state(spec.id) is MachineState.RUNNING
    begun = output(harness, address, "until [ -s begun ]; do sleep 0.1; done; cat begun; echo $OWN")
    assert begun.split() == ["yes", "yes"]


def test_a_paused_machine_becomes_what_the_specification_says(harness: Harness) -> None:
    spec, address = waiting(harness)
    becomes_its_owners(harness, spec, address)
    driver = harness.driver
    with pytest.raises(InvalidMachineState):
        driver.assign(spec)
    driver.pause(spec.id)
    with pytest.raises(InvalidMachineState):
        driver.assign(spec)
    driver.resume(spec.id)
    assert output(harness, address, "cat begun") == "yes"
    assert driver.shutdown(spec.id, 30.0)
    identity = driver.prepare(spec)
    assert identity.ssh_host_key == address.host_key


def test_another_driver_may_assign_it(harness: Harness) -> None:
    spec, address = waiting(harness)
    harness.reopen_driver()
    becomes_its_owners(harness, spec, address)
    harness.kill(harness.driver, spec.id)
    harness.wait_event(spec.id, EventKind.STOPPED)
    assert harness.driver.state(spec.id) is MachineState.OFF


def test_machines_that_do_not_wait_for_it_stay_as_they_are(harness: Harness) -> None:
    harness.require_guest()
    driver, spec = harness.driver, harness.spec()
    with pytest.raises(MachineNotFound):
        driver.assign(spec)
    driver.prepare(replace(spec, boot=Boot(hostname="nobody", unassigned=True)))
    with pytest.raises(InvalidMachineState):
        driver.assign(spec)
    assert driver.state(spec.id) is MachineState.OFF


@pytest.fixture
def break_guest(monkeypatch: pytest.MonkeyPatch) -> Callable[[Harness], None]:
    """Let the guest of the next assignment be silent."""

    def break_it(harness: Harness) -> None:
        error = GuestUnreachable("It is silent.")
        if isinstance(harness.driver, FakeDriver):
            harness.driver.fail_next("assign:half", error)
        else:
            monkeypatch.setattr(power, "assign_guest", _raising(error))

    return break_it


def _raising(error: BackendError) -> Callable[..., None]:
    def raises(*_: Any) -> None:
        raise error

    return raises


def test_after_a_failure_it_is_off_and_made_as_any_other(
    harness: Harness, break_guest: Callable[[Harness], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, address = waiting(harness)
    break_guest(harness)
    with pytest.raises(GuestUnreachable):
        harness.driver.assign(spec)
    assert harness.driver.state(spec.id) is MachineState.OFF
    with pytest.raises(InvalidMachineState):
        harness.driver.assign(spec)
    assert harness.driver.prepare(spec).ssh_host_key == address.host_key
    harness.driver.start(spec.id)
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    assert output(harness, address, "until [ -s begun ]; do sleep 0.1; done; cat begun") == "yes"
