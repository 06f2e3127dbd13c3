"""A host whose disk is nearly full: what is refused, which machines wait, and what comes back by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings

from tests.callers import Caller
from tests.fakehost import FakeHost
from vmbackend.driver import MachineState
from workspaces.host import process
from workspaces.host.disk_guard import DiskGuard
from workspaces.host.reconcile.machines import resume_paused_machines
from workspaces.models import Activity

pytestmark = pytest.mark.django_db(transaction=True)
RESERVE = 64


@pytest.fixture
def free() -> dict[Path, int]:
    """Free MiB by folder; the guard's own files are real."""
    return {settings.STATE: 1000, settings.ENV.machines_dir: 1000}


@pytest.fixture
def guard(vmhost: FakeHost, free: dict[Path, int]) -> Iterator[DiskGuard]:
    made = DiskGuard(
        vmhost.runtime.name,
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
def nearly_full(vmhost: FakeHost) -> Iterator[Callable[[], None]]:
    """When called, the host reports a disk that its one machine takes."""
    before = vmhost.driver.capacity()

    def fill() -> None:
        vmhost.driver.set_capacity(replace(before, disk_mb=64))
        vmhost.runtime.send_heartbeat()

    yield fill
    vmhost.driver.set_capacity(before)


def create(api: Caller) -> str:
    answer = api.post("/workspace", {"config": {"disk_size_mb": 64}})
    assert answer.status_code == 201, answer.content
    made: str = answer.json()["workspace"]["id"]
    return made


def write_on_disk(vmhost: FakeHost, workspace_id: str, kilobytes: int) -> None:
    """What a guest writes, as the host's file system sees it."""
    with (vmhost.driver._store.directory(workspace_id) / "disk" / "content").open("ab") as file:
        file.write(b"x" * (kilobytes << 10))


def test_machines_whose_disks_grow_wait_until_there_is_room(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int]
) -> None:
    writer, reader = create(api), create(api)
    free[settings.ENV.machines_dir] = RESERVE // 2 - 1
    guard.check_once()
    write_on_disk(vmhost, writer, 100)
    guard.check_once()
    states = {key: vmhost.driver.state(key) for key in (writer, reader)}
    assert states == {writer: MachineState.PAUSED, reader: MachineState.RUNNING}
    assert Activity.objects.filter(workspace_id=writer, event="disk_full").count() == 1
    # Neither the periodic reconcile nor a little room lets it write again.
    process.reconcile(vmhost.runtime)
    free[settings.ENV.machines_dir] = RESERVE // 2
    guard.check_once()
    assert vmhost.driver.state(writer) is MachineState.PAUSED
    free[settings.ENV.machines_dir] = RESERVE
    guard.check_once()
    assert vmhost.driver.state(writer) is MachineState.RUNNING
    assert api.get(f"/workspace/{writer}").json()["workspace"]["info"]["status"] == "running"


def test_a_machine_that_its_owner_paused_stays_paused_when_there_is_room(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int]
) -> None:
    mine = create(api)
    assert api.post(f"/workspace/{mine}/pause").status_code == 200
    for megabytes in (0, 1000):
        free[settings.ENV.machines_dir] = megabytes
        guard.check_once()
    assert vmhost.driver.state(mine) is MachineState.PAUSED


def test_a_waiting_machine_can_be_stopped_and_deleted(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int]
) -> None:
    writer = create(api)
    free[settings.ENV.machines_dir] = 0
    guard.check_once()
    write_on_disk(vmhost, writer, 100)
    guard.check_once()
    assert api.post(f"/workspace/{writer}/stop").json()["workspace"]["info"]["status"] == "stopped"
    assert api.delete(f"/workspace/{writer}").status_code == 200


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


@pytest.mark.parametrize("what", ["create", "start"])
def test_nothing_is_begun_on_a_host_without_room(
    api: Caller, vmhost: FakeHost, nearly_full: Callable[[], None], what: str
) -> None:
    made = create(api)
    api.post(f"/workspace/{made}/stop")
    nearly_full()
    answer = api.post("/workspace", {}) if what == "create" else api.post(f"/workspace/{made}/start")
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    assert answer.json()["details"]["resource"] == "disk_size_mb"
    assert api.delete(f"/workspace/{made}").status_code == 200
