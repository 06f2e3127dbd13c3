"""Copies of guests whose root answers the host in place of the kit: the host ends them, or they reach nobody."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from vmbackend.driver import MachineState
from vmbackend.errors import CopyUnproven, GuestUnreachable
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt import copy_loading, held_programs, snapshots
from vmbackend.power import StartedFrom

from .conftest import Harness
from .snapshot_scenes import driver_of, load_fork, put_program, run
from .test_parent_and_child import SERVERS, WHO, answer_of

pytestmark = pytest.mark.vm
SOURCE = Path(__file__).with_name("hostile_port_main.c")
BEGIN = """
setsid /hostile {} < /dev/null > /dev/shm/hostile 2>&1 &
until [ -s /dev/shm/hostile ]; do sleep 0.1; done
"""


@pytest.fixture
def harness(libvirt_harness: Harness) -> Harness:
    return libvirt_harness


def hostile_machine(harness: Harness, mode: str, aside: Path) -> GuestAddress:
    address = harness.running_machine()
    put_program(harness, address, SOURCE, "/hostile", aside)
    run(harness, address, SERVERS)
    run(harness, address, "echo parent > /who")
    run(harness, address, BEGIN.format(mode))
    return address


def keep(harness: Harness, address: GuestAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a snapshot as of a guest that lies about its programs, too; one that only does not stop them gets none."""
    with monkeypatch.context() as patched:
        patched.setattr(held_programs, "_SECONDS", 1.0)
        with pytest.raises(GuestUnreachable):
            harness.driver.snapshot(address.machine_id, "s1")
        for name in ("freeze_programs", "thaw_programs"):
            patched.setattr(snapshots, name, lambda _files: None)
        harness.driver.snapshot(address.machine_id, "s1")


@pytest.mark.parametrize("mode", ["silent", "flood", "deny"])
def test_a_copy_whose_root_does_not_let_it_renew_itself_is_ended_before_it_has_a_network(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Its parent, and a neighbour that is forked at that time, go on."""
    monkeypatch.setattr(copy_loading, "_ANSWER_SECONDS", 5.0)
    connected: list[str] = []
    hostile, honest = hostile_machine(harness, mode, tmp_path), harness.running_machine()
    keep(harness, hostile, monkeypatch)
    spec = harness.spec(snapshot="s1")
    harness.driver.prepare(spec)
    with monkeypatch.context() as patched:
        patched.setattr(driver_of(harness)._network, "connect", connected.append)
        with pytest.raises(CopyUnproven):
            harness.driver.load(spec.id, "s1")
    assert connected == []
    assert harness.driver.state(spec.id) is MachineState.OFF
    assert answer_of(hostile, WHO) == "parent"
    harness.driver.snapshot(honest.machine_id, "s2")
    assert run(harness, load_fork(harness, "s2"), "echo works") == "works"
    assert run(harness, honest, "echo works") == "works"


def test_a_copy_that_pretends_to_be_renewed_reaches_nobody_as_its_parent(harness: Harness, tmp_path: Path) -> None:
    """It has its parent's address, and no packet with it passes; nor has it got its own."""
    parent = hostile_machine(harness, "pretend", tmp_path)
    harness.driver.snapshot(parent.machine_id, "s1")
    spec = harness.spec(snapshot="s1")
    identity = harness.driver.prepare(spec)
    assert harness.driver.load(spec.id, "s1") is StartedFrom.SNAPSHOT
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        assert answer_of(parent, WHO) == "parent"
    liar = GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)
    assert answer_of(liar, WHO) is None
    assert run(harness, parent, "cat /who") == "parent"
