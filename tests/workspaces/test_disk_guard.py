"""A host whose disk is nearly full: what is refused, which machines wait, and what comes back by itself."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.workspace_states import bring, status_of
from vmbackend.driver import MachineState
from vmbackend.errors import CapacityExceeded, InvalidMachineState
from workspaces.host import disk_guard, process
from workspaces.host.disk_guard import ENDED_MESSAGE, DiskGuard
from workspaces.host.reconcile.machines import resume_paused_machines
from workspaces.models import Activity, Operation, Workspace
from workspaces.power.services import workspace_restart, workspace_sleep, workspace_start, workspace_stop
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
RESERVE = 64
NO_ROOM = CapacityExceeded("The host lacks space.")


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


def create(api: Caller) -> str:
    answer = api.post("/workspace", {"config": {"disk_size_mb": 64}})
    assert answer.status_code == 201, answer.content
    made: str = answer.json()["workspace"]["id"]
    return made


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


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
    process.reconcile_rows_and_machines(vmhost.runtime)
    free[settings.ENV.machines_dir] = RESERVE // 2
    guard.check_once()
    assert vmhost.driver.state(writer) is MachineState.PAUSED
    free[settings.ENV.machines_dir] = RESERVE
    guard.check_once()
    assert vmhost.driver.state(writer) is MachineState.RUNNING
    assert api.get(f"/workspace/{writer}").json()["workspace"]["info"]["status"] == "running"


def test_the_first_round_of_a_shortage_pauses_what_grew_since_the_round_before(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int]
) -> None:
    writer, reader = create(api), create(api)
    free[settings.ENV.machines_dir] = RESERVE - 1
    guard.check_once()
    write_on_disk(vmhost, writer, 100)
    free[settings.ENV.machines_dir] = RESERVE // 2 - 1
    guard.check_once()
    states = {key: vmhost.driver.state(key) for key in (writer, reader)}
    assert states == {writer: MachineState.PAUSED, reader: MachineState.RUNNING}


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_machines_are_paused_while_the_database_is_away(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int], error: type[Exception]
) -> None:
    writer, reader = create(api), create(api)
    free[settings.ENV.machines_dir] = 0
    guard.check_once()
    write_on_disk(vmhost, writer, 100)

    def refuse(*args: object) -> None:
        raise error("the connection is closed")

    with connection.execute_wrapper(refuse):
        guard._check_safely()
    states = {key: vmhost.driver.state(key) for key in (writer, reader)}
    assert states == {writer: MachineState.PAUSED, reader: MachineState.RUNNING}
    free[settings.ENV.machines_dir] = RESERVE
    guard.check_once()
    assert (vmhost.driver.state(writer), status_of(writer)) == (MachineState.RUNNING, "running")


def test_a_machine_that_writes_while_it_is_stopped_waits_from_its_second_round_on(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int]
) -> None:
    writer = create(api)
    free[settings.ENV.machines_dir] = 0
    guard.check_once()
    vmhost.hold_tasks()
    workspace_stop(workspace=Workspace.objects.get(pk=writer), actor="owner")
    states = []
    for _ in range(2):
        write_on_disk(vmhost, writer, 100)
        guard.check_once()
        states.append(vmhost.driver.state(writer))
    assert states == [MachineState.RUNNING, MachineState.PAUSED]
    vmhost.release_tasks()
    vmhost.settle()
    assert (vmhost.driver.state(writer), status_of(writer)) == (MachineState.OFF, "stopped")


def test_a_machine_that_writes_while_it_starts_goes_on_when_there_is_room(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = create(api)
    bring(api, vmhost, writer, Status.STOPPED)
    seen, wait_ready = [], vmhost.driver.wait_ready

    def write_until_ready(machine_id: str, timeout: float) -> None:
        free[settings.ENV.machines_dir] = 0
        guard.check_once()
        for _ in range(2):
            write_on_disk(vmhost, writer, 100)
            guard.check_once()
        seen.append(vmhost.driver.state(writer))
        free[settings.ENV.machines_dir] = RESERVE
        guard.check_once()
        wait_ready(machine_id, 1)

    monkeypatch.setattr(vmhost.driver, "wait_ready", write_until_ready)
    assert api.post(f"/workspace/{writer}/start").status_code == 200
    assert (seen, vmhost.driver.state(writer)) == ([MachineState.PAUSED], MachineState.RUNNING)


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


@pytest.mark.parametrize("kind", ["sleep", "restart", "stop"])
def test_a_waiting_machine_runs_again_though_an_operation_on_it_failed(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int], waiting: str, kind: str
) -> None:
    vmhost.driver.fail_next("sleep" if kind == "sleep" else "shutdown", NO_ROOM)
    begin = {"sleep": workspace_sleep, "restart": workspace_restart, "stop": workspace_stop}[kind]
    operation = begin(workspace=Workspace.objects.get(pk=waiting), actor="owner")
    vmhost.settle()
    operation.refresh_from_db()
    assert (operation.state, status_of(waiting)) == ("failed", "running")
    free[settings.ENV.machines_dir] = RESERVE
    guard.check_once()
    assert (vmhost.driver.state(waiting), status_of(waiting)) == (MachineState.RUNNING, "running")


def test_a_workspace_that_its_owner_paused_stays_paused_though_an_operation_on_it_failed(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int], waiting: str
) -> None:
    assert api.post(f"/workspace/{waiting}/pause").status_code == 200
    vmhost.driver.fail_next("shutdown", NO_ROOM)
    workspace_stop(workspace=Workspace.objects.get(pk=waiting), actor="owner")
    vmhost.settle()
    free[settings.ENV.machines_dir] = RESERVE
    guard.check_once()
    process.reconcile_rows_and_machines(vmhost.runtime)
    assert (vmhost.driver.state(waiting), status_of(waiting)) == (MachineState.PAUSED, "paused")


def test_a_waiting_machine_runs_again_though_the_transition_of_an_operation_was_lost(
    vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int], waiting: str
) -> None:
    vmhost.hold_tasks()
    workspace_stop(workspace=Workspace.objects.get(pk=waiting), actor="owner")
    vmhost.held_tasks = None
    Operation.objects.filter(kind="stop").update(state="failed")
    process.reconcile_rows_and_machines(vmhost.runtime)
    assert status_of(waiting) == "running"
    free[settings.ENV.machines_dir] = RESERVE
    guard.check_once()
    assert vmhost.driver.state(waiting) is MachineState.RUNNING


def test_a_machine_that_goes_on_writing_though_it_is_paused_is_ended(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, waiting: str
) -> None:
    other = create(api)
    allowed = RESERVE // 16 << 10
    write_on_disk(vmhost, waiting, allowed)
    guard.check_once()
    assert vmhost.driver.state(waiting) is MachineState.PAUSED  # what was on its way when it was paused
    write_on_disk(vmhost, waiting, 100)
    guard.check_once()
    states = {key: vmhost.driver.state(key) for key in (waiting, other)}
    assert states == {waiting: MachineState.OFF, other: MachineState.RUNNING}
    until(lambda: status_of(waiting) == "stopped")
    details = Activity.objects.filter(workspace_id=waiting, event="disk_full").values_list("detail", flat=True)
    assert ENDED_MESSAGE in details


def test_a_machine_that_something_else_resumes_is_paused_again_and_then_ended(
    vmhost: FakeHost, guard: DiskGuard, waiting: str
) -> None:
    states = []
    for _ in range(3):
        vmhost.driver.resume(waiting)
        write_on_disk(vmhost, waiting, RESERVE // 2 << 6)  # a half of what is allowed
        guard.check_once()
        states.append(vmhost.driver.state(waiting))
    assert states == [MachineState.PAUSED, MachineState.PAUSED, MachineState.OFF]


def test_a_machine_that_grew_before_there_was_room_again_may_grow_again(
    vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int], waiting: str
) -> None:
    for megabytes in (RESERVE, 0, 0):
        free[settings.ENV.machines_dir] = megabytes
        guard.check_once()
        write_on_disk(vmhost, waiting, RESERVE // 16 << 10)
    guard.check_once()
    assert vmhost.driver.state(waiting) is MachineState.PAUSED


def test_a_machine_that_cannot_be_paused_holds_up_no_other_and_is_ended(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_guard, "ANSWER_SECONDS", 0.05)
    silent, writer = create(api), create(api)
    free[settings.ENV.machines_dir] = 0
    guard.check_once()
    pause, answers, asked = vmhost.driver.pause, threading.Event(), []

    def block(machine_id: str) -> None:
        asked.append(machine_id)
        if machine_id == silent:
            answers.wait(20)
        pause(machine_id)

    monkeypatch.setattr(vmhost.driver, "pause", block)
    for _ in range(2):
        for key in (silent, writer):
            write_on_disk(vmhost, key, 100)
        guard.check_once()
    assert (vmhost.driver.state(writer), asked.count(silent)) == (MachineState.PAUSED, 1)
    write_on_disk(vmhost, silent, RESERVE // 16 << 10)
    guard.check_once()
    assert vmhost.driver.state(silent) is MachineState.OFF
    answers.set()


def test_a_machine_that_was_paused_in_a_wake_that_failed_goes_on_when_there_is_room(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = create(api)
    bring(api, vmhost, writer, Status.SLEEPING)
    start = vmhost.driver.start

    def start_and_fail(machine_id: str) -> None:
        start(machine_id)
        free[settings.ENV.machines_dir] = 0
        guard.check_once()
        for _ in range(2):
            write_on_disk(vmhost, writer, 100)
            guard.check_once()
        raise InvalidMachineState("It does not go on.")

    monkeypatch.setattr(vmhost.driver, "start", start_and_fail)
    api.post(f"/workspace/{writer}/start")
    vmhost.settle()
    assert (vmhost.driver.state(writer), status_of(writer)) == (MachineState.PAUSED, "running")
    process.reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.state(writer) is MachineState.PAUSED
    free[settings.ENV.machines_dir] = RESERVE
    guard.check_once()
    assert (vmhost.driver.state(writer), status_of(writer)) == (MachineState.RUNNING, "running")


def test_a_machine_that_was_paused_in_a_start_whose_transition_was_lost_goes_on_when_there_is_room(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int]
) -> None:
    writer = create(api)
    bring(api, vmhost, writer, Status.STOPPED)
    vmhost.hold_tasks()
    workspace_start(workspace=Workspace.objects.get(pk=writer), actor="owner")
    vmhost.held_tasks = None
    vmhost.driver.start(writer)
    vmhost.driver.pause(writer)
    Operation.objects.filter(workspace_id=writer, kind="start").update(state="failed")
    free[settings.ENV.machines_dir] = 0
    guard.check_once()
    process.reconcile_rows_and_machines(vmhost.runtime)
    assert (vmhost.driver.state(writer), status_of(writer)) == (MachineState.PAUSED, "running")
    free[settings.ENV.machines_dir] = RESERVE
    guard.check_once()
    assert vmhost.driver.state(writer) is MachineState.RUNNING


def test_a_machine_whose_resume_failed_after_it_was_paused_can_be_resumed_by_its_owner(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = create(api)
    bring(api, vmhost, writer, Status.PAUSED)
    resume = vmhost.driver.resume

    def resume_and_fail(machine_id: str) -> None:
        resume(machine_id)
        vmhost.driver.pause(machine_id)
        raise InvalidMachineState("It does not go on.")

    with monkeypatch.context() as patch:
        patch.setattr(vmhost.driver, "resume", resume_and_fail)
        api.post(f"/workspace/{writer}/resume")
        vmhost.settle()
    assert (vmhost.driver.state(writer), status_of(writer)) == (MachineState.PAUSED, "paused")
    assert api.post(f"/workspace/{writer}/resume").status_code == 200
    assert (vmhost.driver.state(writer), status_of(writer)) == (MachineState.RUNNING, "running")


def test_a_machine_that_was_loaded_for_a_sleeping_workspace_waits_for_room(
    api: Caller, vmhost: FakeHost, guard: DiskGuard, free: dict[Path, int]
) -> None:
    made = create(api)
    bring(api, vmhost, made, Status.SLEEPING)
    vmhost.driver.start(made)
    vmhost.driver.pause(made)
    free[settings.ENV.machines_dir] = 0
    guard.check_once()
    process.reconcile_rows_and_machines(vmhost.runtime)
    assert (vmhost.driver.state(made), status_of(made)) == (MachineState.PAUSED, "running")
    free[settings.ENV.machines_dir] = RESERVE
    guard.check_once()
    assert vmhost.driver.state(made) is MachineState.RUNNING


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


# The request, and the status of the workspace before it.
BEGINNINGS: dict[str, tuple[str, str, dict[str, object], Status]] = {
    "create": ("POST", "", {}, Status.RUNNING),
    "start": ("POST", "start", {}, Status.STOPPED),
    "forced start": ("POST", "start", {"force": True}, Status.RUNNING),
    "restart": ("POST", "restart", {}, Status.RUNNING),
    "reinstall": ("POST", "reinstall", {}, Status.RUNNING),
    "resize": ("PUT", "overlay/resize", {"size_mb": 128}, Status.RUNNING),
    "resume": ("POST", "resume", {}, Status.PAUSED),
    "wake": ("POST", "resume", {}, Status.SLEEPING),
}


@pytest.mark.parametrize("what", BEGINNINGS)
def test_no_machine_is_let_run_on_a_host_without_room(
    api: Caller, vmhost: FakeHost, nearly_full: Callable[[], None], what: str
) -> None:
    method, action, body, before = BEGINNINGS[what]
    made = create(api)
    if before is not Status.RUNNING:
        bring(api, vmhost, made, before)
    machine = vmhost.driver.state(made)
    nearly_full()
    path = f"/workspace/{made}/{action}" if action else "/workspace"
    answer = api.post(path, body) if method == "POST" else api.put(path, body)
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    assert answer.json()["details"]["resource"] == "disk_size_mb"
    assert (vmhost.driver.state(made), status_of(made)) == (machine, before)
    assert api.delete(f"/workspace/{made}").status_code == 200
