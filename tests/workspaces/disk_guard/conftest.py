"""A host with a guard of its own, whose free space is what a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.disk_guard.scenes import RESERVE, create, write_on_disk
from vmbackend.driver import MachineState
from workspaces.host.disk_guard import DiskGuard
from workspaces.host.reconcile.machines import resume_paused_machines


@pytest.fixture
def free() -> dict[Path, int]:
    """Free MiB by folder; the guard's own files are real."""
    return {settings.STATE: 1000, settings.ENV.machines_dir: 1000}


@pytest.fixture
def guard(vmhost: FakeHost, free: dict[Path, int]) -> Iterator[DiskGuard]:
    made = DiskGuard(
        vmhost.runtime.host_id,
        vmhost.driver,
        reserve_mb=RESERVE,
        state=settings.STATE,
        machines=settings.ENV.machines_dir,
        free=lambda folder: free[folder],
    )
    made._on_room = lambda: resume_paused_machines(vmhost.runtime)
    vmhost.runtime.disk_guard = made
    yield made
    made._file.release()


@pytest.fixture
def waiting(api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int]) -> str:
    """A running workspace whose machine waits for room on the host's disk."""
    made = create(api)
    free[settings.ENV.machines_dir] = 0
    guard.check_once()
    write_on_disk(vmhost, made, 100)
    guard.check_once()
    assert vmhost.driver.state(made) is MachineState.PAUSED
    return made


@pytest.fixture
def nearly_full(vmhost: FakeHost) -> Iterator[Callable[[], None]]:
    """When called, the host reports a disk that its machines take."""
    before = vmhost.driver.capacity()

    def fill() -> None:
        vmhost.driver.set_capacity(replace(before, disk_mb=before.disk_mb - vmhost.driver.capacity().disk_free_mb))
        vmhost.runtime.send_heartbeat()

    yield fill
    vmhost.driver.set_capacity(before)
