"""Machines that fill the disk of their host wait, and run again when there is room."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.disk_guard.scenes import RESERVE, create, until, write_on_disk
from tests.workspaces.workspace_states import bring, status_of
from vmbackend.driver import MachineState
from workspaces.host import disk_guard, process
from workspaces.host.disk_guard import ENDED_MESSAGE, DiskGuard
from workspaces.models import Activity, Workspace
from workspaces.power import workspace_stop
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


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
    assert Activity.objects.filter(workspace_id=writer, action="disk_full").count() == 1
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
    details = Activity.objects.filter(workspace_id=waiting, action="disk_full").values_list("detail", flat=True)
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
