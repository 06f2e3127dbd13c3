"""A real machine that moves: its memory goes on as another machine, and nothing else of the other host does."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakehost import Died
from vmbackend.driver import Boot, MachineState
from vmbackend.errors import BackendUnavailable, SavedMemoryUnusable
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt import message_exchange
from vmbackend.libvirt.firewall import mac_for
from vmbackend.libvirt.moved_memory import MovedMemory
from vmbackend.power import StartedFrom

from .conftest import Harness
from .snapshot_scenes import driver_of, files_of, run
from .test_copy_loading import PARENT, WHO

pytestmark = pytest.mark.vm

AWAIT_NONCE = "until [ -s /dev/shm/nonce ]; do sleep 0.1; done"


def hostile_copy(folder: Path, program: Path, aside: Path) -> Callable[[Path], None]:
    """Return what copies a snapshot whose memory names another program to be run as root, as its manifest says."""

    def fetch(target: Path) -> None:
        for path in folder.iterdir():
            shutil.copy2(path, target / path.name)
        memory, manifest = target / "memory", target / "manifest.json"
        content = memory.read_bytes()
        start = content.index(b"<emulator>") + len(b"<emulator>")
        emulator = content[start : content.index(b"</emulator>", start)]
        shutil.copyfile(program, aside / "program")
        named = str(aside).encode().ljust(len(emulator) - len("/program"), b"/") + b"/program"
        assert len(named) == len(emulator), "the folder's path is short enough"
        changed = content[:start] + named + content[start + len(emulator) :]
        memory.chmod(0o600)
        memory.write_bytes(changed)
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"memory_crc32": zlib.crc32(changed)}))

    return fetch


def prepare(harness: Harness, snapshot_id: str, name: str) -> GuestAddress:
    """Make a machine that sleeps on a snapshot."""
    spec = replace(harness.spec(snapshot=snapshot_id), boot=Boot(hostname=name, env={"OWN": name}))
    identity = harness.driver.prepare(spec)
    harness.driver.sleep_on(spec.id, snapshot_id)
    return GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)


def wake(harness: Harness, address: GuestAddress) -> list[str]:
    assert harness.driver.start(address.machine_id) is StartedFrom.MEMORY
    harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    return run(harness, address, WHO).splitlines()


def test_its_programs_go_on_under_another_identity(
    libvirt_harness: Harness, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, driver = libvirt_harness, driver_of(libvirt_harness)
    spec = replace(harness.spec(), boot=PARENT)
    identity = driver.prepare(spec)
    left = GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)
    driver.start(left.machine_id)
    driver.wait_ready(left.machine_id, harness.boot_seconds)
    run(harness, left, f"{AWAIT_NONCE}; echo before > /kept; sync")
    before = run(harness, left, WHO).splitlines()
    driver.sleep(left.machine_id)
    made = driver.snapshot(left.machine_id, "left")
    program = short / "evil"
    program.write_text(f"#!/bin/sh\ntouch {short}/ran\n")
    fetch = hostile_copy(driver.snapshot_folder("left"), program, short)
    driver.receive_snapshot("arrived", fetch, size_bytes=made.size_bytes)
    (short / "program").chmod(0o755)
    driver.delete(left.machine_id)
    driver.remove_snapshot("left")

    moved = prepare(harness, "arrived", "moved")
    driver.remove_snapshot("arrived")
    harness.reopen_driver()
    driver = driver_of(harness)
    assert driver.state(moved.machine_id) is MachineState.ASLEEP
    driver.snapshot(moved.machine_id, "asleep")
    connect = driver._network.connect

    def fail(_ip: str) -> None:
        raise BackendUnavailable("The host cannot connect the machine just now.")

    monkeypatch.setattr(driver._network, "connect", fail)
    with pytest.raises(BackendUnavailable):
        driver.start(moved.machine_id)
    monkeypatch.setattr(driver._network, "connect", connect)
    assert driver.state(moved.machine_id) is MachineState.ASLEEP
    assert files_of(harness, moved.machine_id).read_chain().taken == "arrived"

    def die(*_arguments: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(MovedMemory, "mark_woken", die)
        patch.setattr(driver._power, "_roll_back_start", lambda *_arguments, **_options: None)
        with pytest.raises(Died):
            driver.start(moved.machine_id)
    assert driver.state(moved.machine_id) is MachineState.RUNNING, "nobody's process"
    harness.reopen_driver()
    driver = driver_of(harness)
    assert driver.state(moved.machine_id) is MachineState.ASLEEP

    seen = wake(harness, moved)
    assert seen[2:4] == [mac_for(moved.ip), f"{moved.ip}/24"]
    assert seen[6:] == [before[6], "moved", "moved"], "the nonce of the same memory"
    assert not {before[place] for place in (0, 1, 2, 3, 4, 5)} & set(seen)
    assert run(harness, moved, f"cat /kept; ip address | grep -c {left.ip} || true") == "before\n0"
    assert not (short / "ran").exists(), "no program that the other host named has run"
    run(harness, moved, "echo after > /kept; sync")
    driver.sleep(moved.machine_id)
    assert wake(harness, moved)[6:] == seen[6:]
    assert run(harness, moved, "cat /kept") == "after"

    driver.snapshot(moved.machine_id, "written")
    entry = driver._snapshot_store.find_entry("written")
    assert [layer.format for layer in entry.layers[1:]] == ["qcow2"] * (len(entry.layers) - 1) != []

    def copy(target: Path) -> None:
        for path in entry.path.iterdir():
            shutil.copy2(path, target / path.name)

    assert driver.receive_snapshot("again", copy, size_bytes=1).memory, "as QEMU writes its headers"
    for snapshot in ("written", "again"):
        driver.remove_snapshot(snapshot)

    silent = prepare(harness, "asleep", "silent")
    driver.remove_snapshot("asleep")
    with monkeypatch.context() as patch:
        patch.setattr(message_exchange, "read_answers", lambda *_: iter([]))
        with pytest.raises(SavedMemoryUnusable):
            driver.start(silent.machine_id)
    assert driver.state(silent.machine_id) is MachineState.OFF
    assert driver.start(silent.machine_id) is not StartedFrom.MEMORY
    driver.wait_ready(silent.machine_id, harness.boot_seconds)
    assert run(harness, silent, "cat /kept; ls /dev/shm") == "before"
