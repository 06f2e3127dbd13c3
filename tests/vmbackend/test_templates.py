"""Starts from a boot template: who a machine is, its size, its disk, its sleep."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cache import DEBIAN_KIT_DIR, use_kit_dir
from tests.run_extent import campaign_after
from vmbackend.driver import EventKind, MachineSpec
from vmbackend.guest.kit import build_kit
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt import templates
from vmbackend.libvirt.domain import uuid_for
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.firewall import mac_for
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
