"""A guest whose root drives the balloon of its memory as it likes, while it and its neighbours are kept and loaded."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from vmbackend.driver import MachineState
from vmbackend.errors import InvalidMachineState

from .conftest import Harness
from .snapshot_scenes import driver_of, load_fork, put_program, run

pytestmark = pytest.mark.vm
SOURCE = Path(__file__).with_name("balloon_main.c")
BEGIN = """
setsid /balloon {} < /dev/null > /dev/shm/balloon 2>&1 &
until [ -s /dev/shm/balloon ]; do sleep 0.1; done; cat /dev/shm/balloon
"""
# Most of its memory, and what that must be.
FILL = "head -c 60000000 /dev/urandom > /dev/shm/content; md5sum < /dev/shm/content > /dev/shm/sum; cat /dev/shm/sum"
SUM = "md5sum < /dev/shm/content"


def test_a_guest_that_drives_its_balloon_harms_no_neighbour(libvirt_harness: Harness, tmp_path: Path) -> None:
    """Its statement of its memory is no number that its size does not allow; it can be kept, forked and ended."""
    harness, driver = libvirt_harness, libvirt_harness.driver
    honest, hostile = harness.running_machine(), harness.running_machine()
    content = run(harness, honest, FILL)
    driver.snapshot(honest.machine_id, "honest")
    put_program(harness, hostile, SOURCE, "/balloon", tmp_path)
    assert run(harness, hostile, BEGIN.format("")) == "drives the balloon"
    for number in range(3):
        copy = load_fork(harness, "honest")
        assert run(harness, copy, SUM) == content
        assert run(harness, honest, SUM) == content
        driver.snapshot(hostile.machine_id, f"hostile{number}")
        assert run(harness, load_fork(harness, f"hostile{number}"), "echo works") == "works"
        assert run(harness, hostile, "echo works") == "works"
        for sample in driver.samples(driver.inventory().ids()).values():
            if sample.memory_used_bytes is not None and sample.memory_total_bytes is not None:
                assert 0 <= sample.memory_used_bytes <= sample.memory_total_bytes <= 192 << 20
        driver.delete(copy.machine_id)
    driver.sleep(hostile.machine_id)
    assert driver.state(hostile.machine_id) is MachineState.ASLEEP
    driver.start(hostile.machine_id)
    driver.wait_ready(hostile.machine_id, harness.boot_seconds)
    assert run(harness, hostile, "echo works") == "works"
    assert run(harness, honest, SUM) == content


def await_balloon(harness: Harness, machine_id: str, size: str) -> None:
    """Wait until the hypervisor has heard of a size that matches."""
    driver, deadline = driver_of(harness), time.monotonic() + harness.boot_seconds
    target = driver._domains.find(driver._libvirt.connection, machine_id)
    while not re.search(rf"<currentMemory unit='KiB'>{size}</", target.XMLDesc(0)):
        assert time.monotonic() < deadline, target.XMLDesc(0)
        time.sleep(0.1)


@pytest.mark.parametrize("size", ["0xffffffff", "0x80000000", "0xc001"])
def test_a_size_that_no_balloon_has_is_the_machines_own_fault(
    libvirt_harness: Harness, tmp_path: Path, size: str
) -> None:
    """Libvirt reads no description with such a size. The machine goes on, nothing is left, and a restart mends it."""
    harness, driver = libvirt_harness, libvirt_harness.driver
    address = harness.running_machine()
    run(harness, address, "echo kept > /kept; sync")
    put_program(harness, address, SOURCE, "/balloon", tmp_path)
    assert run(harness, address, BEGIN.format(size)) == "drives the balloon"
    await_balloon(harness, address.machine_id, r"\d{15,}")
    for memory in (True, False):
        with pytest.raises(InvalidMachineState, match="restart it"):
            driver.snapshot(address.machine_id, "s1", memory=memory)
    with pytest.raises(InvalidMachineState, match="restart it"):
        driver.sleep(address.machine_id)
    assert driver.inventory().snapshots == driver.inventory().saved == frozenset()
    assert driver.state(address.machine_id) is MachineState.RUNNING
    assert run(harness, address, "cat /kept") == "kept"
    driver.flatten(address.machine_id, 60.0)
    driver.destroy(address.machine_id)
    driver.start(address.machine_id)
    driver.wait_ready(address.machine_id, harness.boot_seconds)
    assert driver.snapshot(address.machine_id, "s1").memory
    assert run(harness, load_fork(harness, "s1"), "cat /kept") == "kept"
