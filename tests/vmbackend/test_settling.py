"""Settling machines of a new connection, with a libvirt whose machines answer when the test lets them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

libvirt = pytest.importorskip("libvirt")

from vmbackend.errors import BackendUnavailable  # noqa: E402
from vmbackend.libvirt import settling as module  # noqa: E402
from vmbackend.libvirt.record import MachineDir  # noqa: E402
from vmbackend.libvirt.settling import Settling  # noqa: E402
from vmbackend.libvirt.unfinished_starts import remove_unfinished_starts  # noqa: E402


class Machine:
    """A domain. Its statistics block until its process answers or has ended."""

    def __init__(self) -> None:
        self.active = True
        self.answers = threading.Event()

    def isActive(self) -> bool:
        return self.active

    def memoryStats(self) -> dict[str, int]:
        self.answers.wait(20)
        if not self.active:
            raise libvirt.libvirtError("it has ended")
        return {}


@pytest.fixture
def machines() -> Iterator[dict[str, Machine]]:
    made = {name: Machine() for name in ("hangs", "hangs_too", "answers", "off")}
    made["answers"].answers.set()
    made["off"].active = False
    yield made
    for machine in made.values():
        machine.answers.set()


@pytest.fixture
def reconciled() -> list[str]:
    return []


@pytest.fixture
def settling(
    machines: dict[str, Machine], reconciled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Settling]:
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0.2)
    made = Settling(lambda files, domain: reconciled.append(files.id))
    made.settle_machines([(MachineDir(tmp_path, name), domain) for name, domain in machines.items()])
    yield made
    made.end()


def wait_until_settled(settling: Settling, machine_id: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            return settling.require_settled(machine_id)
        except BackendUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_machines_that_hang_delay_no_other(settling: Settling, reconciled: list[str]) -> None:
    assert sorted(reconciled) == ["answers", "off"]
    for name in ("answers", "off", "unknown"):
        settling.require_settled(name)
    for name in ("hangs", "hangs_too"):
        with pytest.raises(BackendUnavailable):
            settling.require_settled(name)


def test_a_machine_is_settled_when_it_answers(
    settling: Settling, machines: dict[str, Machine], reconciled: list[str]
) -> None:
    machines["hangs"].answers.set()
    wait_until_settled(settling, "hangs")
    assert reconciled[2:] == ["hangs"]


def test_a_machine_is_settled_when_its_process_has_ended(
    settling: Settling, machines: dict[str, Machine], reconciled: list[str]
) -> None:
    machines["hangs"].active = False
    machines["hangs"].answers.set()
    wait_until_settled(settling, "hangs")
    assert reconciled[2:] == ["hangs"]


def test_nothing_is_reported_after_the_connection_was_closed(
    settling: Settling, machines: dict[str, Machine], reconciled: list[str]
) -> None:
    settling.end()
    machines["hangs"].answers.set()
    machines["hangs_too"].answers.set()
    for thread in threading.enumerate():
        if thread.name.startswith("settle-hangs"):
            thread.join(10)
    assert sorted(reconciled) == ["answers", "off"]


def test_a_reconciliation_that_fails_is_raised(tmp_path: Path, machines: dict[str, Machine]) -> None:
    def fail(files: MachineDir, domain: object) -> None:
        raise BackendUnavailable("The connection to the hypervisor failed.")

    with pytest.raises(BackendUnavailable):
        Settling(fail).settle_machines([(MachineDir(tmp_path, "answers"), machines["answers"])])


def test_only_starts_without_a_process_id_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "qemu"
    folder.mkdir(parents=True)
    (folder / "begun.xml").write_text("<domstatus state='paused' reason='starting up' pid='0'><domain/></domstatus>")
    (folder / "begun.pid").write_text("77777777")
    (folder / "running.xml").write_text("<domstatus state='running' reason='booted' pid='1'><domain/></domstatus>")
    (folder / "cut.xml").write_text("<domstatus state='paused' pid='0'>")
    (folder / "other.xml").write_text("<other pid='0'/>")
    for _ in range(2):
        remove_unfinished_starts(tmp_path, {tmp_path})
        assert sorted(path.name for path in folder.iterdir()) == ["cut.xml", "other.xml", "running.xml"]
    remove_unfinished_starts(tmp_path / "none", set())
