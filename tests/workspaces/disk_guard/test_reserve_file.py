"""The file that holds room for the control plane."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.conf import settings

from tests.fakehost import FakeHost
from tests.workspaces.disk_guard.scenes import RESERVE
from workspaces.host.disk_guard import DiskGuard

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_reserve_is_held_given_up_and_held_again(guard: DiskGuard, free: dict[Path, int]) -> None:
    path = settings.STATE / "reserve"
    guard.check_once()
    assert path.stat().st_blocks * 512 >= RESERVE // 4 << 20
    free[settings.STATE] = RESERVE // 8 - 1
    guard.check_once()
    assert not path.exists()
    free[settings.STATE] = RESERVE // 2  # with the file there would be less than when machines are paused
    guard.check_once()
    assert not path.exists()
    free[settings.STATE] = RESERVE
    guard.check_once()
    assert path.exists()


def test_a_reserve_that_was_allocated_in_part_is_completed(guard: DiskGuard) -> None:
    path = settings.STATE / "reserve"
    path.write_bytes(b"x")
    guard.check_once()
    assert path.stat().st_blocks * 512 >= RESERVE // 4 << 20


def test_a_file_system_that_allocates_nothing_in_advance_gets_no_reserve_file(
    guard: DiskGuard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    allocated: list[int] = []

    def allocate_nothing(descriptor: int, offset: int, size: int) -> None:
        allocated.append(size)
        os.ftruncate(descriptor, size)

    monkeypatch.setattr(os, "posix_fallocate", allocate_nothing)
    guard.check_once()
    guard.check_once()
    assert allocated == [RESERVE // 4 << 20]
    assert caplog.text.count("allocates no space in advance") == 1
    assert not (settings.STATE / "reserve").exists()


@pytest.mark.parametrize("reserve", [0, RESERVE // 2])
def test_a_reserve_file_of_another_size_is_replaced(vmhost: FakeHost, guard: DiskGuard, reserve: int) -> None:
    guard.check_once()
    path = settings.STATE / "reserve"
    smaller = DiskGuard("x", vmhost.driver, reserve_mb=reserve, state=path.parent, machines=path.parent)
    smaller.start(lambda: None)
    smaller.stop()
    assert (path.stat().st_size if path.exists() else 0) == reserve // 4 << 20
