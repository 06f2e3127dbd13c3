"""Starts from a boot template that fail, lie or are cut off: the machine boots, and nothing of the attempt is left."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import libvirt
import pytest

from tests.vmbackend.test_templates import harness, never_quiet, shared, start, starts_by, store_of, who
from vmbackend.driver import MachineSpec, MachineState
from vmbackend.errors import BackendUnavailable, GuestUnreachable, TemplateUnusable
from vmbackend.libvirt import message_exchange, template_making
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.power import Power
from vmbackend.libvirt.record import MachineDir
from vmbackend.power import StartedFrom

from .conftest import Harness
from .test_sleep_contract import CLOCK_ERROR, read_clocks

__all__ = ["harness", "never_quiet", "shared"]  # fixtures

pytestmark = pytest.mark.vm


def test_a_process_that_dies_before_its_answer_is_replaced_by_a_boot(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    require = message_exchange._require_answer

    def killed(*arguments: Any) -> bool:
        monkeypatch.undo()
        (pid,) = factory.qemu_pids(harness.settings.machines_dir, spec.id)  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGKILL)
        return bool(require(*arguments))

    spec = harness.spec()
    monkeypatch.setattr(message_exchange, "_require_answer", killed)
    address, began = start(harness, spec)
    assert began is StartedFrom.BOOT
    assert harness.driver.state(spec.id) is MachineState.RUNNING
    assert who(harness, address)[4] == f"{spec.ip}/24"


def test_a_boot_that_ends_with_the_process_before_it_is_repeated(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, begun = Power._start, list[str]()

    def end_at_once(power: Power, target: Any, hooks: Any) -> None:
        begin(power, target, hooks)
        begun.append(target.name())
        if len(begun) == 1:
            target.destroy()

    def refuse(*_: object) -> None:
        raise GuestUnreachable("It does not answer.")

    monkeypatch.setattr(Power, "_start", end_at_once)
    monkeypatch.setattr(message_exchange, "_require_answer", refuse)
    address, began = start(harness, harness.spec())
    assert (began, len(begun)) == (StartedFrom.BOOT, 2)
    assert who(harness, address)[4] == f"{address.ip}/24"


def test_a_machine_that_cannot_prove_who_it_is_is_ended_before_it_has_a_network(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start that follows is a boot; here that fails, too, so that what the first one left can be seen."""

    def refuse(*_: object) -> None:
        raise TemplateUnusable("It answered for another machine.")

    def fail(*_: object) -> None:
        raise BackendUnavailable("The hypervisor could not start the machine.")

    driver = harness.driver
    assert isinstance(driver, LibvirtDriver)
    spec = harness.spec()
    driver.prepare(spec)
    connected: list[str] = []
    monkeypatch.setattr(message_exchange, "_require_answer", refuse)
    monkeypatch.setattr(driver._network, "connect", connected.append)
    monkeypatch.setattr(driver._power, "_start", fail)
    with pytest.raises(BackendUnavailable):
        driver.start(spec.id)
    assert driver.state(spec.id) is MachineState.OFF
    assert connected == []


@pytest.mark.parametrize("step", ["discard_answers", "_require_answer"])
def test_a_load_that_a_dead_process_left_is_undone(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its CPUs are stopped, or run without anybody who reads its answer."""
    driver = harness.driver
    assert isinstance(driver, LibvirtDriver)
    spec = harness.spec()
    driver.prepare(spec)
    with monkeypatch.context() as patched:
        patched.setattr(message_exchange, step, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patched.setattr(driver._power, "_roll_back_start", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            driver.start(spec.id)
    assert driver.state(spec.id) in (MachineState.PAUSED, MachineState.RUNNING)
    harness.reopen_driver()
    assert harness.driver.state(spec.id) is MachineState.OFF
    assert start(harness, spec)[1] is StartedFrom.TEMPLATE


@pytest.mark.parametrize("prepares", [False, True])
def test_a_load_whose_process_could_not_be_ended_is_not_taken_for_the_machine(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, prepares: bool
) -> None:
    driver = harness.driver
    assert isinstance(driver, LibvirtDriver)
    spec = harness.spec()
    driver.prepare(spec)
    with monkeypatch.context() as patched:
        patched.setattr(message_exchange, "_require_answer", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patched.setattr(driver._power, "_roll_back_start", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            driver.start(spec.id)
    if prepares:
        driver.prepare(spec)
    assert driver.start(spec.id) is StartedFrom.TEMPLATE
    driver.wait_ready(spec.id, harness.boot_seconds)


def test_a_clock_that_a_slow_load_left_late_is_set_when_the_machine_is_ready(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is two minutes old when the guest reads it."""
    real = message_exchange.time.time_ns
    with monkeypatch.context() as patched:
        times = iter([real() - 120 * 10**9])
        patched.setattr(message_exchange.time, "time_ns", lambda: next(times, None) or real())
        address, began = start(harness, harness.spec())
    assert began is StartedFrom.TEMPLATE
    before, clock, after = read_clocks(harness, address)
    assert before - CLOCK_ERROR < clock < after + CLOCK_ERROR


@pytest.mark.parametrize("place", ["loading.touch", "blockResize", "XMLDesc", "attach"])
def test_whatever_fails_in_a_load_the_machine_boots(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    driver = harness.driver
    assert isinstance(driver, LibvirtDriver)

    def full(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise OSError(28, "No space left on device")

    def refuse(*_: object) -> None:
        monkeypatch.undo()
        raise libvirt.libvirtError("it is gone")

    spec = harness.spec()
    driver.prepare(spec)
    if place == "loading.touch":
        monkeypatch.setattr(Path, "touch", full)
    elif place == "attach":
        monkeypatch.setattr(driver._network, "attach", full)
    else:
        monkeypatch.setattr(libvirt.virDomain, place, refuse)
    began = driver.start(spec.id)
    driver.wait_ready(spec.id, harness.boot_seconds)
    assert began is StartedFrom.BOOT


def test_what_a_dead_process_was_making_is_removed(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = harness.driver
    assert isinstance(driver, LibvirtDriver)
    definition = driver._domains.find(driver._libvirt.connection, prepared(harness).id).XMLDesc(2)
    maker = driver._templates._maker
    memory = store_of(harness) / ".new-dead" / "memory"
    memory.parent.mkdir()
    with monkeypatch.context() as patched:
        # As if the process ended after the guest was started.
        patched.setattr(
            template_making.TemplateMaker, "_await_line", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        patched.setattr(template_making.TemplateMaker, "clean_up", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            maker.save_waiting_guest(driver._libvirt.connection, definition, memory)
    files = MachineDir(harness.settings.machines_dir, ".template")  # type: ignore[attr-defined]
    assert files.path.exists()
    assert driver.inventory().ids() == set(harness.ids) & driver.inventory().ids()
    harness.reopen_driver()
    assert not files.path.exists()
    assert not memory.parent.exists()
    assert [domain for domain in all_domains(harness) if "template" in domain] == []


def test_a_driver_that_closes_ends_the_guest_it_starts_for_a_template(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    monkeypatch.setattr(template_making, "_WAITING", b"never said")
    starts_by(harness, harness.spec(memory_mb=224))
    deadline = time.monotonic() + harness.boot_seconds
    while not [name for name in all_domains(harness) if "template" in name]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    began = time.monotonic()
    harness.driver.close()
    took = time.monotonic() - began
    left = factory.qemu_pids(harness.settings.machines_dir, ".template")  # type: ignore[attr-defined]
    harness.driver = harness.make_driver()
    harness.driver.open(harness.events.append)
    assert (left, took < 30) == ([], True), "its guest is ended, not waited for"


def prepared(harness: Harness) -> MachineSpec:
    spec = harness.spec()
    harness.driver.prepare(spec)
    return spec


def all_domains(harness: Harness) -> list[str]:
    driver = harness.driver
    assert isinstance(driver, LibvirtDriver)
    return [domain.name() for domain in driver._libvirt.connection.listAllDomains()]
