"""How much of the host's disk must be free before a machine's disk is replaced or grows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmbackend.errors import CapacityExceeded, InvalidMachineState
from vmbackend.libvirt import disk_making, disks
from vmbackend.libvirt.disk_making import DiskMaker
from vmbackend.libvirt.flattening import Flattener
from vmbackend.libvirt.record import Chain, MachineDir

from .test_chains import CHAIN, RECORD

RESERVE = 100


@pytest.fixture
def room(short: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whether it passes with that much free. Machine and snapshot have 64 MiB, of which the snapshot uses 10."""
    entry = SimpleNamespace(disk_mb=64, disk_bytes=10 << 20)
    settings: Any = SimpleNamespace(machines_dir=short, disk_reserve_mb=RESERVE)
    store: Any = SimpleNamespace(find_entry=lambda _: entry)
    unused: Any = None
    maker = DiskMaker(settings, unused, unused, Flattener(settings, unused, unused), store)
    files = MachineDir(short, "m1")
    files.create()
    monkeypatch.setattr(disk_making, "disk_bytes", lambda _: 64 << 20)

    def passes(free_mb: int, disk_mb: int = 64, *, chain: Chain = CHAIN, **asked: Any) -> bool:
        files.write_record(replace(RECORD, chain=chain))
        monkeypatch.setattr(disks, "free_mb", lambda _: RESERVE + free_mb)
        try:
            maker.require_room(files, disk_mb, asked.get("snapshot", ""), from_memory=asked.get("memory", False))
        except CapacityExceeded:
            return False
        return True

    return passes


def test_a_disk_that_does_not_change_needs_nothing(room: Any) -> None:
    assert room(-1)


def test_a_disk_that_grows_needs_what_is_missing_or_what_is_copied_of_its_layers(room: Any) -> None:
    assert [room(free, 128, chain=Chain()) for free in (63, 64)] == [False, True]
    assert [room(free, 65) for free in (0, 1)] == [False, True]


def test_a_disk_that_is_taken_needs_a_layer_and_is_copied_if_it_is_to_grow(room: Any) -> None:
    assert [room(free, snapshot="s") for free in (7, 8)] == [False, True]
    taken = replace(CHAIN, taken="s")
    assert [room(free, 65, chain=taken, snapshot="s") for free in (18, 19)] == [False, True]
    assert [room(free, 65, chain=taken, snapshot="s", memory=True) for free in (7, 8)] == [False, True]
    with pytest.raises(InvalidMachineState):
        room(512, 63, snapshot="s")
