"""The driver contract: usage samples. Every backend passes this file, as far as its machines have a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import pytest

from vmbackend.driver import Driver
from vmbackend.errors import BackendUnavailable, GuestUnreachable, InvalidMachineState, MachineNotFound
from vmbackend.fake.driver import FakeDriver
from vmbackend.guest.session import GuestAddress
from vmbackend.samples import Sample

from .conftest import Harness, Machine

COUNTERS = ("cpu_time_ns", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")
SIZE = 3 << 20


def sample_of(driver: Driver, machine_id: str) -> Sample:
    """A machine whose process another call looks at in this moment is left out."""
    deadline = time.monotonic() + 10
    while machine_id not in (found := driver.samples([machine_id])):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found[machine_id]


async def _use_resources(session) -> None:
    """Use CPU, network and disk."""

    async def content():
        for _ in range(SIZE >> 16):
            yield b"\xa5" * (1 << 16)

    await session.write("/payload", content())
    await session.sync()
    async for _chunk in session.read("/payload"):
        pass


def generate_usage(harness: Harness, address) -> None:
    harness.pool.call(address, _use_resources)
    if isinstance(harness.driver, FakeDriver):
        harness.driver.add_usage(address.machine_id, **dict.fromkeys(COUNTERS, SIZE))


def test_samples_omit_machines_without_a_process(harness: Harness) -> None:
    spec = harness.spec()
    harness.driver.prepare(spec)
    assert harness.driver.samples([]) == {}
    assert harness.driver.samples([spec.id, "never_created"]) == {}


def test_counters_grow_with_usage(machine: Machine) -> None:
    harness, address = machine.harness, machine.address
    harness.require_guest()
    before = sample_of(harness.driver, address.machine_id)
    generate_usage(harness, address)
    after = sample_of(harness.driver, address.machine_id)
    assert after.generation == before.generation != ""
    assert after.at > before.at
    assert after.cpu_time_ns > before.cpu_time_ns
    for name in ("disk_write_bytes", "net_rx_bytes", "net_tx_bytes"):
        assert getattr(after, name) - getattr(before, name) >= SIZE, name


def test_memory_is_reported_by_the_guest_within_its_size(machine: Machine) -> None:
    harness, address = machine.harness, machine.address
    harness.require_guest()
    deadline = time.monotonic() + harness.boot_seconds
    while (sample := sample_of(harness.driver, address.machine_id)).memory_total_bytes is None:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert sample.memory_used_bytes is not None
    assert 0 < sample.memory_used_bytes < sample.memory_total_bytes <= 192 << 20


def test_samples_that_are_taken_while_a_machine_is_restarted_grow_within_each_process(machine: Machine) -> None:
    harness, address = machine.harness, machine.address
    harness.require_guest()
    generate_usage(harness, address)
    before = sample_of(harness.driver, address.machine_id)
    seen, ended = [before], threading.Event()

    def measure() -> None:
        while not ended.wait(0.01):
            with suppress(BackendUnavailable):
                seen.extend(harness.driver.samples([address.machine_id]).values())

    with ThreadPoolExecutor(1) as pool:
        measuring = pool.submit(measure)
        try:
            harness.driver.shutdown(address.machine_id, 5)
            harness.driver.start(address.machine_id)
            harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
        finally:
            ended.set()
        measuring.result(120)
    seen.append(sample_of(harness.driver, address.machine_id))
    generations = list(dict.fromkeys(sample.generation for sample in seen))
    assert len(generations) == 2
    assert generations[0] == before.generation
    for one, next_one in pairwise(seen):
        if one.generation == next_one.generation:
            assert all(getattr(one, name) <= getattr(next_one, name) for name in COUNTERS), (one, next_one)


@pytest.fixture
def other(machine: Machine) -> Iterator[GuestAddress]:
    """A second machine."""
    machine.harness.require_guest()
    made = machine.harness.running_machine()
    yield made
    machine.harness.driver.delete(made.machine_id)


def test_samples_cover_only_the_requested_machines(machine: Machine, other: GuestAddress) -> None:
    harness, one = machine.harness, machine.address
    assert set(harness.driver.samples([one.machine_id])) == {one.machine_id}
    both = {one.machine_id, other.machine_id}
    deadline = time.monotonic() + harness.boot_seconds
    # A process that gets no time for a while may be left out of one sample.
    while (found := set(harness.driver.samples([*both, "never_created"]))) != both:
        assert found < both
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_new_process_has_a_new_generation_with_counters_from_zero(machine: Machine) -> None:
    harness, address = machine.harness, machine.address
    harness.require_guest()
    generate_usage(harness, address)
    first = sample_of(harness.driver, address.machine_id)
    harness.driver.destroy(address.machine_id)
    assert harness.driver.samples([address.machine_id]) == {}
    harness.driver.start(address.machine_id)
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    second = sample_of(harness.driver, address.machine_id)
    assert second.generation not in ("", first.generation)
    assert second.net_tx_bytes < first.net_tx_bytes
    harness.driver.sleep(address.machine_id)
    assert harness.driver.samples([address.machine_id]) == {}
    harness.driver.start(address.machine_id)
    assert sample_of(harness.driver, address.machine_id).generation not in ("", first.generation, second.generation)


def test_a_later_driver_reports_the_same_generation(machine: Machine) -> None:
    harness, address = machine.harness, machine.address
    harness.require_guest()
    generate_usage(harness, address)
    before = sample_of(harness.driver, address.machine_id)
    harness.reopen_driver()
    after = sample_of(harness.driver, address.machine_id)
    assert after.generation == before.generation
    for name in COUNTERS:
        assert getattr(after, name) >= getattr(before, name), name


def test_a_paused_machine_is_measured_and_uses_nothing(machine: Machine) -> None:
    harness, address = machine.harness, machine.address
    harness.require_guest()
    harness.driver.pause(address.machine_id)
    before = sample_of(harness.driver, address.machine_id)
    after = sample_of(harness.driver, address.machine_id)
    assert (after.generation, after.net_tx_bytes) == (before.generation, before.net_tx_bytes)


def test_saving_one_machine_does_not_delay_samples_of_another(machine: Machine, other: GuestAddress) -> None:
    harness, one = machine.harness, machine.address
    if isinstance(harness.driver, FakeDriver):
        harness.driver.delays["sleep"] = 1.0
    saving = threading.Thread(target=harness.driver.sleep, args=(other.machine_id,))
    saving.start()
    during = 0
    while saving.is_alive():
        assert set(harness.driver.samples([one.machine_id])) == {one.machine_id}
        during += saving.is_alive()
        time.sleep(0.01)
    saving.join()
    # A call that waited for the save would have returned after it.
    assert during > 3


def test_the_guest_reports_its_disk_usage(harness: Harness) -> None:
    harness.require_guest()
    address = harness.running_machine()
    assert harness.driver.agent_responds(address.machine_id, 120)
    before = harness.driver.guest_disk(address.machine_id, 5)
    assert 0 <= before.used_bytes < before.total_bytes <= 64 << 20
    harness.pool.call(address, _use_resources)
    after = harness.driver.guest_disk(address.machine_id, 5)
    assert after.total_bytes == before.total_bytes
    assert after.used_bytes - before.used_bytes >= SIZE


def test_disk_usage_of_a_silent_or_stopped_guest_is_an_error(harness: Harness) -> None:
    with pytest.raises(MachineNotFound):
        harness.driver.guest_disk("never_created", 1)
    spec = harness.spec()
    harness.driver.prepare(spec)
    with pytest.raises(InvalidMachineState):
        harness.driver.guest_disk(spec.id, 1)
    if isinstance(harness.driver, FakeDriver):
        harness.driver.start(spec.id)
        harness.driver.delays["guest_disk"] = 60
        with pytest.raises(GuestUnreachable):
            harness.driver.guest_disk(spec.id, 0.05)


def test_an_unavailable_hypervisor_raises_backend_unavailable(harness: Harness) -> None:
    if isinstance(harness.driver, FakeDriver):
        harness.driver.fail_next("samples", BackendUnavailable("away"))
    else:
        harness.driver.close()
    with pytest.raises(BackendUnavailable):
        harness.driver.samples(["anything"])
