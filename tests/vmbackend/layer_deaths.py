"""A vmhost that dies at a step of a change of a disk's chain, and what must be whole after its next start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vmbackend.driver import MachineState
from vmbackend.libvirt import disks, domain, flattening, layers, snapshots, store
from vmbackend.libvirt.layers import Layers
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.store import FOLDER

from .conftest import Machine
from .snapshot_scenes import content_of_snapshot, files_of, run
from .test_sleep_contract import wake

RUNNING = [(MachineState.RUNNING, False), (MachineState.RUNNING, True)]
OFF, ASLEEP = (MachineState.OFF, False), (MachineState.ASLEEP, False)
FLATTEN_STEPS: list[tuple[Any, str]] = [
    (flattening, "_create_raw"),
    (flattening, "_await_ready"),
    (flattening, "convert_layers"),
    (disks, "sync_file"),
    (MachineDir, "write_record"),
    (Layers, "define"),
    (layers, "remove_others"),
]


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str], *, after: bool) -> Iterator[None]:
    """The process ends before or after the first call of a step: nothing that it would clean up then happens."""
    owner, name = step
    real = getattr(owner, name)
    died: list[str] = []

    def die(*arguments: Any, **options: Any) -> Any:
        if died:
            return real(*arguments, **options)
        died.append(name)
        if after:
            real(*arguments, **options)
        for place in (layers, flattening, snapshots):
            if hasattr(place, "abort_copy"):
                patched.setattr(place, "abort_copy", lambda _target: None)
        patched.setattr(Layers, "settle", lambda *_: None)
        patched.setattr(domain, "resume_domain", lambda _target: None)
        patched.setattr(store, "remove_tree", lambda _path: True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, die)
        with suppress(KeyboardInterrupt):
            yield
    if not died:
        pytest.skip("not a step from this state")


def require_whole(machine: Machine, expected: str, tmp_path: Path) -> None:
    """After the next open nothing is left beside the chain and complete snapshots, and the disk has its content."""
    harness, address = machine.harness, machine.address
    harness.reopen_driver()
    files = files_of(harness, address.machine_id)
    chain = files.read_chain()
    assert {path.name for path in files.path.glob("data*")} == {layer.file for layer in chain.layers}
    kept = {path.name for path in (files.path.parent / FOLDER).iterdir()}
    assert kept == {f"snap_{name}" for name in harness.driver.inventory().snapshots}
    for name in harness.driver.inventory().snapshots:
        assert content_of_snapshot(harness, name, "kept", tmp_path) == expected
    state = harness.driver.state(address.machine_id)
    if state is MachineState.PAUSED:
        harness.driver.resume(address.machine_id)
    elif state is MachineState.ASLEEP:
        wake(harness, address)
    elif state is MachineState.OFF:
        harness.driver.start(address.machine_id)
        harness.driver.wait_ready(address.machine_id, harness.boot_seconds)
    assert run(harness, address, "cat /kept; echo later > /kept; sync; cat /kept") == f"{expected}\nlater"


def bring_to(machine: Machine, state: MachineState) -> None:
    harness, address = machine.harness, machine.address
    if state is MachineState.ASLEEP:
        harness.driver.sleep(address.machine_id)
    elif state is MachineState.OFF:
        assert harness.driver.shutdown(address.machine_id, harness.boot_seconds)


def kill(machine: Machine) -> None:
    with suppress(ValueError, ProcessLookupError):
        machine.harness.kill(machine.harness.driver, machine.address.machine_id)


@dataclass(frozen=True)
class Death:
    """`killed`: the machine's process ends, too."""

    state: MachineState
    owner: Any
    step: str
    after: bool
    killed: bool = False


def deaths(
    states: list[tuple[MachineState, bool]], steps: list[tuple[Any, str]], *, always: int
) -> tuple[int, list[Death]]:
    """All combinations for `campaign_after`; about `always` are not of a campaign, spread over the steps and states."""
    found = [
        Death(state, *step, after, killed) for after in (True, False) for step in steps for state, killed in states
    ]
    spread = found[:: max(1, len(found) // always)]
    return len(spread), spread + [each for each in found if each not in spread]
