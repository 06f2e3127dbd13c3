"""The frequency of the host's time stamp counter, which emulated machines are given."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import pytest

from vmbackend.libvirt import host_tsc
from vmbackend.libvirt.host_tsc import HostTsc


@pytest.fixture
def stable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose kernel offers the counter as a clock; the file says so."""
    path = tmp_path / "available_clocksource"
    path.write_text("tsc kvm-clock \n")
    monkeypatch.setattr(host_tsc, "_CLOCKSOURCES", path)
    return path


def test_two_measurements_agree(stable: Path) -> None:
    found = [HostTsc().khz() for _ in range(2)]
    assert found[0] is not None
    assert found[1] is not None
    assert abs(found[0] - found[1]) < found[0] / 1000


def test_a_counter_that_the_host_does_not_trust_is_not_measured(stable: Path) -> None:
    stable.write_text("kvm-clock acpi_pm \n")
    assert HostTsc().khz() is None
    stable.unlink()
    assert HostTsc().khz() is None


def test_a_process_that_may_not_make_code_does_not_measure(stable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(mmap, "mmap", refuse)
    assert HostTsc().khz() is None


def test_an_implausible_frequency_is_none(stable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(0, 0), (200_000_000, 5)])
    monkeypatch.setattr(host_tsc, "_reading", lambda read: next(readings))
    assert HostTsc().khz() is None
