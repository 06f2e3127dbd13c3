"""A machine that waited goes on though an operation on it failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.disk_guard.scenes import RESERVE, create, write_on_disk
from tests.workspaces.workspace_states import bring, status_of
from vmbackend.driver import MachineState
from vmbackend.errors import CapacityExceeded, InvalidMachineState
from workspaces.host import process
from workspaces.host.disk_guard import DiskGuard
from workspaces.models import Operation, Workspace
from workspaces.power import workspace_restart, workspace_sleep, workspace_start, workspace_stop
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
NO_ROOM = CapacityExceeded("The host lacks space.")


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
