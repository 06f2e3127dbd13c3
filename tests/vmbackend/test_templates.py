"""Starts from a boot template: who a machine is, and what happens if a template cannot be loaded."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from tests.cache import DEBIAN_KIT_DIR, use_kit_dir
from tests.run_extent import campaign_after
from vmbackend.driver import EventKind, MachineSpec, MachineState
from vmbackend.errors import BackendUnavailable, GuestUnreachable, TemplateUnusable
from vmbackend.guest.kit import build_kit
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt import message_exchange, template_making, templates
from vmbackend.libvirt.domain import uuid_for
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.firewall import mac_for
from vmbackend.libvirt.power import Power
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.store import FOLDER
from vmbackend.power import StartedFrom

from .conftest import Harness
from .test_sleep_contract import CLOCK_ERROR, read_clocks

pytestmark = pytest.mark.vm

# The UUID of the firmware is shown by Debian's kernel alone.
WHO = """
cat /proc/sys/kernel/random/boot_id /run/kit/generation /etc/hostname /sys/class/net/eth0/address
ip -4 -o address show eth0 | awk '{print $4}'
ip -6 -o address show eth0 | awk '{print $4}'
head -c 1024 /dev/urandom | md5sum
cat /sys/class/dmi/id/product_uuid 2>/dev/null || echo none $$ $RANDOM
"""


@pytest.fixture(scope="module", autouse=True)
def never_quiet() -> Iterator[None]:
    """The host is busy with tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(templates, "_WAIT_SECONDS", 0.0)
        yield


@pytest.fixture(scope="module")
def shared(never_quiet: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    made = factory.make_harness(tmp_path_factory.mktemp("templates"), boot_templates=2)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def harness(shared: Harness) -> Iterator[Harness]:
    """One with a template for its machines, used last, and no machine."""
    driver = shared.driver
    assert isinstance(driver, LibvirtDriver)
    driver._templates._not_before.clear()  # of one that a test has damaged
    deadline = time.monotonic() + shared.boot_seconds
    while starts_by(shared, shared.spec()) is not StartedFrom.TEMPLATE:
        assert time.monotonic() < deadline, "no template was made"
        time.sleep(0.5)
    yield shared
    for machine_id in shared.ids:
        shared.driver.delete(machine_id)


def starts_by(harness: Harness, spec: MachineSpec) -> StartedFrom | None:
    """How a machine starts now; it is removed again."""
    began = start(harness, spec)[1]
    harness.driver.delete(spec.id)
    return began


def store_of(harness: Harness) -> Path:
    return harness.settings.machines_dir / FOLDER  # type: ignore[attr-defined]


def names_of(harness: Harness) -> list[str]:
    return [path.name for path in store_of(harness).glob("boot_*")]


def await_template(harness: Harness) -> None:
    deadline = time.monotonic() + harness.boot_seconds
    while not names_of(harness):
        assert time.monotonic() < deadline, "no template was made"
        time.sleep(0.05)


def start(harness: Harness, spec: MachineSpec) -> tuple[GuestAddress, StartedFrom | None]:
    identity = harness.driver.prepare(spec)
    began = harness.driver.start(spec.id)
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    return GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key), began


def who(harness: Harness, address: GuestAddress) -> list[str]:
    result = harness.pool.call(address, lambda session: session.execute(WHO, timeout=120.0), 150)
    return str(result.stdout.decode()).splitlines()


@pytest.mark.parametrize("machines", campaign_after(1, [3, 12]))
def test_machines_of_one_template_have_nothing_in_common(harness: Harness, machines: int) -> None:
    found = []
    for number in range(machines):
        spec = harness.spec(disk_mb=64 + 32 * number)
        address, began = start(harness, spec)
        assert began is StartedFrom.TEMPLATE
        seen = who(harness, address)
        assert seen[3] == mac_for(spec.ip)
        assert seen[4] == f"{spec.ip}/24"
        before, clock, after = read_clocks(harness, address)
        assert before - CLOCK_ERROR < clock < after + CLOCK_ERROR
        found.append([*seen, address.host_key])
        harness.driver.delete(spec.id) if machines > 3 else None
    for one, other in itertools.combinations(found, 2):
        same = [value for value in one if value in other]
        assert same == ["test"], "the host name alone is the same"


def test_a_kernel_that_shows_the_firmwares_uuid_shows_the_machines_own(shared: Harness, tmp_path: Path) -> None:
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    kit_dir = use_kit_dir(DEBIAN_KIT_DIR)
    build_kit(kit_dir, lambda *_: None)
    shared.driver.close()  # a process has one connection
    made: Harness = factory.make_harness(tmp_path, boot_templates=1, kit_dir=kit_dir)
    try:
        found = []
        for expected in (StartedFrom.BOOT, StartedFrom.TEMPLATE, StartedFrom.TEMPLATE):
            spec = made.spec()
            address, began = start(made, spec)
            assert began is expected
            raw = "od -An -tx1 -j8 -N16 /sys/firmware/dmi/entries/1-0/raw"
            result = made.pool.call(address, lambda session: session.execute(raw), 150)  # noqa: B023
            found.append([who(made, address)[-1], result.stdout])
            assert found[-1][0] == uuid_for(made.settings.instance, spec.id)  # type: ignore[attr-defined]
            await_template(made)
        assert len({raw for _, raw in found}) == 3
    finally:
        made.close()
        shared.reopen_driver()


def test_the_disk_of_a_machine_has_its_size_and_its_files(harness: Harness) -> None:
    spec = harness.spec(disk_mb=200)
    address, _ = start(harness, spec)
    script = "df -k / | tail -1 | awk '{print $2}'; echo kept > /kept; sync"
    result = harness.pool.call(address, lambda session: session.execute(script), 150)
    assert int(result.stdout) > 170 * 1024
    assert harness.driver.shutdown(spec.id, harness.boot_seconds)
    address, began = start(harness, harness.spec(id=spec.id, ip=spec.ip, disk_mb=300))
    assert began is StartedFrom.TEMPLATE
    script = "cat /kept; df -k / | tail -1 | awk '{print $2}'"
    kept, size = harness.pool.call(address, lambda session: session.execute(script), 150).stdout.split()
    assert (kept, int(size) > 260 * 1024) == (b"kept", True)


def test_a_machine_from_a_template_sleeps_wakes_and_starts_again(harness: Harness) -> None:
    spec = harness.spec(cmd=("sleep", "100000"))
    address, _ = start(harness, spec)
    identity = who(harness, address)
    harness.driver.sleep(spec.id)
    assert harness.driver.start(spec.id) is StartedFrom.MEMORY
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    harness.driver.resync_guest(spec.id)
    assert who(harness, address)[:5] == identity[:5]
    assert harness.driver.shutdown(spec.id, harness.boot_seconds)
    assert harness.driver.start(spec.id) is StartedFrom.TEMPLATE
    harness.driver.wait_ready(spec.id, harness.boot_seconds)
    assert who(harness, address)[0] != identity[0]


def test_another_size_boots_and_gets_a_template_of_its_own(harness: Harness) -> None:
    spec = harness.spec(memory_mb=160)
    assert starts_by(harness, spec) is StartedFrom.BOOT
    deadline = time.monotonic() + harness.boot_seconds
    while len(names_of(harness)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert starts_by(harness, spec) is StartedFrom.TEMPLATE
    shown = {(each.cpus, each.memory_mb): each for each in harness.driver.capacity().templates}
    assert shown.keys() == {(1, 192), (1, 160)}
    assert shown[1, 160].loads == 1
    assert abs(time.time() - shown[1, 160].made_at) < 300


def damage(memory: Path) -> None:
    memory.chmod(0o600)
    with memory.open("r+b") as file:
        file.seek(memory.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def test_a_damaged_template_is_never_used_and_goes_after_three_starts(harness: Harness) -> None:
    name = newest_used(harness)
    damage(store_of(harness) / name / "memory")
    for failures, left in enumerate((True, True, False), 1):
        seen = len(harness.events)
        spec = harness.spec()
        address, began = start(harness, spec)
        assert began is StartedFrom.BOOT
        assert (name in names_of(harness)) is left
        shown = [each.failures for each in harness.driver.capacity().templates if each.memory_mb == spec.memory_mb]
        assert shown == ([failures] if left else [])
        assert who(harness, address)[4] == f"{spec.ip}/24"
        assert not [event for event in harness.events[seen:] if event.kind is EventKind.MAIN_EXITED]
        harness.driver.delete(spec.id)


def newest_used(harness: Harness) -> str:
    """The template of the machines that these tests start."""
    return max(store_of(harness).glob("boot_*"), key=lambda path: path.stat().st_mtime).name


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
