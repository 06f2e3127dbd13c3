"""Sleep with a real libvirt under failures: corrupt files, killed QEMUs, failing rules, external saves."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.run_extent import campaign_after
from vmbackend.driver import EventKind, MachineState, StopReason
from vmbackend.errors import BackendError, BackendUnavailable, SavedMemoryUnusable
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt import saved_state
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.saved_memory import managed_image

from .conftest import Harness, Machine
from .test_sleep_contract import CLOCK_ERROR, read_clocks, read_secret, wake

MIB = 1 << 20
PARTIAL = b"LibvirtQemudPart" + b"\0" * 100


@pytest.fixture
def harness(libvirt_harness: Harness) -> Harness:
    return libvirt_harness


@pytest.fixture
def machine(real_machine: Machine) -> Iterator[Machine]:
    with real_machine.opened():
        yield real_machine


def wait_until(found: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def machine_dir_of(harness: Harness, machine_id: str) -> MachineDir:
    return harness.driver._inventory.machine_dir(machine_id)


def domain_of(harness: Harness, machine_id: str):
    return harness.driver._domains.find(harness.driver._libvirt.connection, machine_id)


def _cut(memory: Path) -> None:
    os.truncate(memory, memory.stat().st_size // 2)


def _overwrite(memory: Path, offset: int, count: int) -> None:
    with memory.open("r+b") as file:
        file.seek(offset)
        file.write(os.urandom(count))


CORRUPTIONS: dict[str, Callable[[Path], None]] = {
    "emptied": lambda memory: os.truncate(memory, 0),
    "cut off": _cut,
    "header overwritten": lambda memory: _overwrite(memory, 0, 4096),
    "header marked partial": lambda memory: memory.write_bytes(PARTIAL + memory.read_bytes()[len(PARTIAL) :]),
    "middle overwritten": lambda memory: _overwrite(memory, memory.stat().st_size // 2, MIB),
    "one byte": lambda memory: _overwrite(memory, memory.stat().st_size // 2, 8),
}


@pytest.mark.vm
def test_a_corrupt_file_is_never_loaded_and_always_reported(machine: Machine):
    harness, address = machine.harness, machine.address
    files = machine_dir_of(harness, address.machine_id)
    for name, corrupt in CORRUPTIONS.items():
        harness.driver.sleep(address.machine_id)
        corrupt(files.memory)
        with pytest.raises(SavedMemoryUnusable):
            harness.driver.start(address.machine_id)
        assert harness.driver.state(address.machine_id) is MachineState.OFF, name
        assert harness.driver.inventory().saved == frozenset()
        wake(harness, address)


@pytest.mark.vm
@pytest.mark.parametrize("name", campaign_after(1, ["cut off", "middle overwritten"]))
def test_the_hypervisor_rejects_a_corrupt_file_without_a_checksum(machine: Machine, name: str):
    harness, address = machine.harness, machine.address
    harness.driver.sleep(address.machine_id)
    files = machine_dir_of(harness, address.machine_id)
    files.memory_checksum.unlink()
    CORRUPTIONS[name](files.memory)
    with pytest.raises(SavedMemoryUnusable):
        harness.driver.start(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.OFF
    wake(harness, address)


@pytest.mark.vm
def test_a_machine_starts_after_qemu_is_killed_while_saving(machine: Machine):
    harness, address = machine.harness, machine.address
    files = machine_dir_of(harness, address.machine_id)
    raised: list[BaseException] = []

    def sleep() -> None:
        try:
            harness.driver.sleep(address.machine_id)
        except BackendError as error:
            raised.append(error)

    sleeping = threading.Thread(target=sleep)
    sleeping.start()
    wait_until(lambda: files.memory.exists() and files.memory.stat().st_size > MIB)
    harness.kill(harness.driver, address.machine_id)
    sleeping.join(60)
    assert len(raised) == 1
    assert harness.driver.state(address.machine_id) is MachineState.OFF
    assert harness.driver.inventory().saved == frozenset()
    assert harness.wait_event(address.machine_id, EventKind.STOPPED).reason is not StopReason.SAVED
    wake(harness, address)


@pytest.mark.vm
def test_a_wake_is_retried_when_qemu_is_killed_while_loading(machine: Machine):
    harness, address = machine.harness, machine.address
    secret = read_secret(harness, address)
    harness.driver.sleep(address.machine_id)
    waking = threading.Thread(target=harness.driver.start, args=(address.machine_id,))
    waking.start()
    kill = harness.kill

    def killed() -> bool:
        try:
            kill(harness.driver, address.machine_id)
        except (ValueError, ProcessLookupError):
            return False
        return True

    wait_until(killed)
    waking.join(60)
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    assert read_secret(harness, address) == secret


@pytest.mark.vm
def test_only_a_resync_corrects_the_time_asleep(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    harness, address = machine.harness, machine.address
    monkeypatch.setattr(saved_state, "freeze_programs", lambda _files: None)  # they would wait for the resync
    harness.driver.sleep(address.machine_id)
    time.sleep(harness.sleep_seconds)
    wake(harness, address)
    before, guest, _ = read_clocks(harness, address)
    assert guest < before - harness.sleep_seconds + 2 * CLOCK_ERROR
    began = time.monotonic()
    harness.driver.resync_guest(address.machine_id)
    assert time.monotonic() - began < 14  # a guest that does not answer is given up after 15
    before, guest, after = read_clocks(harness, address)
    assert before - CLOCK_ERROR < guest < after + CLOCK_ERROR


@pytest.mark.vm
def test_a_machine_stays_asleep_if_its_firewall_rules_fail(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    harness, address = machine.harness, machine.address
    secret = read_secret(harness, address)
    harness.driver.sleep(address.machine_id)

    def refuse(*arguments: object) -> None:
        raise BackendUnavailable("No firewall.")

    with monkeypatch.context() as patched:
        for name in ("attach", "install"):
            patched.setattr(harness.driver._network, name, refuse)
        with pytest.raises(BackendUnavailable, match="No firewall"):
            harness.driver.start(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.ASLEEP
    wake(harness, address)
    assert read_secret(harness, address) == secret


@pytest.mark.vm
def test_memory_is_not_loaded_twice_after_a_wake_that_could_not_be_rolled_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    harness, address = machine.harness, machine.address
    secret = read_secret(harness, address)
    harness.driver.sleep(address.machine_id)

    def refuse(*arguments: object) -> None:
        raise BackendUnavailable("Unavailable.")

    with monkeypatch.context() as patched:
        for name in ("attach", "install"):
            patched.setattr(harness.driver._network, name, refuse)
        patched.setattr("vmbackend.libvirt.domain.destroy_domain", refuse)
        with pytest.raises(BackendUnavailable):
            harness.driver.start(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.PAUSED
    wake(harness, address)
    assert read_secret(harness, address) == secret
    assert harness.driver.inventory().saved == frozenset()


async def _random_bytes(session) -> bytes:
    return bytes((await session.execute("head -c 16 /dev/urandom | od -An -tx1")).stdout.strip())


@pytest.mark.vm
def test_two_wakes_of_the_same_memory_draw_different_random_numbers(harness: Harness, tmp_path: Path):
    address = harness.sleeping_machine()
    files = machine_dir_of(harness, address.machine_id)
    saved = [files.memory, files.memory_checksum, files.data_disk]
    for path in saved:
        shutil.copy2(path, tmp_path)
    random_bytes = []
    for _ in range(2):
        for path in saved:
            shutil.copy2(tmp_path / path.name, path)
        wake(harness, address)
        harness.driver.resync_guest(address.machine_id)
        random_bytes.append(harness.pool.call(address, _random_bytes, 150))
        harness.driver.destroy(address.machine_id)
    assert len(set(random_bytes)) == 2
    assert all(random_bytes)


@pytest.mark.vm
def test_externally_saved_memory_is_loaded_and_verified(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    harness, address = machine.harness, machine.address
    secret = read_secret(harness, address)
    domain_of(harness, address.machine_id).managedSave()
    assert harness.driver.state(address.machine_id) is MachineState.ASLEEP
    assert harness.driver.inventory().saved == {address.machine_id}
    from vmbackend.libvirt.domain import state_of

    limited: list[MachineState] = []
    limit = harness.driver._confiner._limits.apply
    monkeypatch.setattr(
        harness.driver._confiner._limits,
        "apply",
        lambda target, record, **how: (limited.append(state_of(target)), limit(target, record, **how)),
    )
    wake(harness, address)
    assert limited == [MachineState.PAUSED]  # its CPUs have not run before
    assert read_secret(harness, address) == secret
    domain = domain_of(harness, address.machine_id)
    domain.managedSave()
    _overwrite(managed_image(harness.settings.embed_root, domain.name()), 0, 4096)
    with pytest.raises(SavedMemoryUnusable):
        harness.driver.start(address.machine_id)
    assert harness.driver.state(address.machine_id) is MachineState.OFF
    assert harness.driver.inventory().saved == frozenset()


@pytest.mark.vm
def test_a_managed_save_image_without_a_machine_is_an_orphan(harness: Harness):
    image = managed_image(harness.settings.embed_root, f"mvm-{harness.settings.instance}-ws_gone")
    image.write_bytes(PARTIAL)
    assert harness.driver.inventory().saved == {"ws_gone"}
    harness.driver.delete("ws_gone")
    assert harness.driver.inventory().ids() == frozenset()
    assert not image.exists()


@pytest.mark.vm
def test_a_cpu_quota_applies_before_and_after_a_sleep(harness: Harness):
    address = harness.running_machine(cpus=0.3, cmd=("/bin/sh", "-c", "while :; do :; done"))
    if not harness.driver._power._quota_works:
        pytest.skip("this host's cgroups take no quota")
    before = _share(harness, address)
    assert 0 < before < 0.4
    harness.driver.sleep(address.machine_id)
    wake(harness, address)
    after = _share(harness, address)
    assert 0 < after < 0.4


def _share(harness: Harness, address: GuestAddress) -> float:
    """CPUs that the machine's process uses, over three seconds."""
    from .libvirt_factory import qemu_pids

    (pid,) = qemu_pids(harness.settings.machines_dir, address.machine_id)

    def used() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    first, began = used(), time.monotonic()
    time.sleep(3)
    return (used() - first) / (time.monotonic() - began)
