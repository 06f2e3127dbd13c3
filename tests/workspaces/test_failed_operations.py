"""What an operation leaves that failed, that never started, or whose claim owner came too late."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import OperationalError
from django.utils import timezone

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.injected import Scene
from tests.workspaces.workspace_states import make
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, InvalidMachineState
from workspaces import power, reinstall
from workspaces.host import engine, process
from workspaces.host.reconcile.operations import expire_operations
from workspaces.lifecycle import services as lifecycle
from workspaces.models import Activity, Operation, Workspace
from workspaces.models.workspace import Mode, TtlAction
from workspaces.operations import queue
from workspaces.resources import services as resources
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)

NO = InvalidMachineState("The backend says no.")


def make_overdue() -> None:
    Operation.objects.update(deadline_at=timezone.now() - timedelta(seconds=1))
    assert expire_operations() == 1


def test_a_failed_creation_that_cannot_be_destroyed_can_still_be_tried_again(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.FAILED)
    vmhost.driver.fail_next("delete", NO)
    assert api.delete(f"/workspace/{made}/lifecycle").status_code == 503
    assert Workspace.objects.get(pk=made).status == "failed"
    assert api.post(f"/workspace/{made}/provisioning/retry").status_code == 202


@pytest.mark.parametrize("step", [0, -1], ids=["first", "last"])
def test_an_operation_that_a_full_disk_interrupts_is_carried_out_once_there_is_room(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    made = make(api, vmhost, Status.RUNNING)
    full_at, record_step = engine.KINDS["stop"].steps[step][0], queue.record_step

    def record_on_full_disk(operation: Operation, name: str) -> None:
        if name == full_at and operation.attempt == 1:
            raise OperationalError("database or disk is full")
        record_step(operation, name)

    monkeypatch.setattr(queue, "record_step", record_on_full_disk)
    power.workspace_stop(workspace=Workspace.objects.get(pk=made), actor="owner")
    vmhost.settle()
    assert Workspace.objects.get(pk=made).status == "stopping"
    process.reconcile_rows_and_machines(vmhost.runtime)
    vmhost.settle()
    assert Workspace.objects.get(pk=made).status == "stopped"
    assert vmhost.driver.state(made) is MachineState.OFF


def test_a_destroy_past_its_deadline_leaves_a_failed_creation_failed(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.FAILED)
    vmhost.hold_tasks()
    lifecycle.workspace_destroy(workspace=Workspace.objects.get(pk=made), actor="owner")
    operation = Operation.objects.get(kind="destroy")
    Operation.objects.filter(pk=operation.pk).update(attempt=1)  # an earlier attempt had begun it
    make_overdue()
    assert Workspace.objects.get(pk=made).status == "failed"


@pytest.mark.parametrize("action", ["restart", "reinstall", "resize running", "forced start", "destroy"])
def test_an_operation_that_never_started_leaves_the_machine_alone(api: Caller, vmhost: FakeHost, action: str) -> None:
    """A host that is silent past the deadline comes back with its machines running: none of them is ended."""
    case = next(case for case in fault_cases.CASES if case.name == action)
    made = fault_cases.begin(vmhost, api.account, case)
    before = vmhost.driver.definition(made)
    make_overdue()
    vmhost.release_tasks()
    fault_cases.come_to_rest(vmhost)
    row = Workspace.objects.get(pk=made)
    assert (row.status, row.ready, row.error_code) == ("running", True, "deadline_exceeded")
    assert vmhost.driver.state(made) is MachineState.RUNNING
    assert (row.applied_memory_mb, row.applied_disk_size_mb) == (before["memory_mb"], before["disk_mb"])
    assert row.disk_size_mb == before["disk_mb"]
    assert not Activity.objects.filter(workspace_id=made, action="ended").exists()


@pytest.mark.parametrize("action", [power.workspace_restart, reinstall.workspace_reinstall])
def test_a_machine_that_could_not_be_stopped_counts_with_the_sizes_it_has(
    api: Caller, vmhost: FakeHost, action: object
) -> None:
    row = fault_cases.machine(vmhost, api.account, mode=Mode.PERMANENT, cpu_millis=2000, memory_mb=1024)
    smaller = {"cpu_millis": 100, "memory_mb": 128}
    resources.resources_update(workspace=row, actor="owner", changes=smaller, apply=False)
    vmhost.driver.fail_next("shutdown", NO)
    action(workspace=row, actor="owner")  # type: ignore[operator]
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.applied_cpu_millis, row.applied_memory_mb) == ("running", 2000, 1024)
    assert (row.cpu_millis, row.memory_mb) == (100, 128)  # saved, and waiting


def test_sizes_that_a_restart_began_to_apply_stay(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies once the machine runs again; the attempts after it cannot stop the machine."""
    row = fault_cases.machine(vmhost, api.account, mode=Mode.PERMANENT, memory_mb=1024)
    resources.resources_update(workspace=row, actor="owner", changes={"memory_mb": 128}, apply=False)
    scene = Scene(vmhost, monkeypatch, "restart", "wait_ready", row.pk)

    def die() -> None:
        vmhost.driver.fail_next("shutdown", BackendUnavailable("Away."), times=2)
        raise vmhost.begin_death()

    scene.before(die)
    power.workspace_restart(workspace=row, actor="owner")
    fault_cases.come_to_rest(vmhost)
    row.refresh_from_db()
    assert (row.status, row.applied_memory_mb) == ("running", 128)
    assert vmhost.driver.definition(row.pk)["memory_mb"] == 128


def test_a_forced_start_that_is_tried_again_does_not_end_a_machine_that_ran(api: Caller, vmhost: FakeHost) -> None:
    row = fault_cases.machine(vmhost, api.account, mode=Mode.PERMANENT)
    vmhost.driver.fail_next("wait_ready", BackendUnavailable("Away for a moment."))
    power.workspace_start(workspace=row, actor="owner", force=True)
    vmhost.settle()
    assert Workspace.objects.get(pk=row.pk).started_at == row.started_at


def test_a_forced_start_that_fails_leaves_a_machine_that_ran(api: Caller, vmhost: FakeHost) -> None:
    row = fault_cases.machine(vmhost, api.account, mode=Mode.PERMANENT)
    vmhost.driver.fail_next("wait_ready", NO)
    power.workspace_start(workspace=row, actor="owner", force=True)
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.error_code) == ("running", "invalid_machine_state")
    assert vmhost.driver.state(row.pk) is MachineState.RUNNING


def test_after_a_failed_start_the_stop_is_not_user_requested(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.STOPPED)
    assert api.get(f"/workspace/{made}").json()["workspace"]["info"]["user_requested_stop"] is True
    vmhost.driver.fail_next("start", NO)
    assert api.post(f"/workspace/{made}/start").status_code == 503
    info = api.get(f"/workspace/{made}").json()["workspace"]["info"]
    assert (info["status"], info["user_requested_stop"]) == ("stopped", False)


def test_a_claim_owner_that_fails_too_late_does_not_end_its_successors_machine(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = fault_cases.machine(vmhost, api.account, Status.STOPPED, mode=Mode.PERMANENT)

    def overtaken(machine_id: str, timeout: float) -> None:
        make_overdue()
        vmhost.driver.destroy(row.pk)  # reconcile's doing
        vmhost.driver.start(row.pk)  # its owner's next start
        raise NO

    monkeypatch.setattr(vmhost.driver, "wait_ready", overtaken)
    power.workspace_start(workspace=row, actor="owner")
    vmhost.settle()
    assert vmhost.driver.state(row.pk) is MachineState.RUNNING


def test_one_that_goes_on_although_it_was_to_stop_has_its_clocks(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pausing used the TTL up; a stop resumes the machine for the power button, and may fail then."""
    row = fault_cases.machine(
        vmhost, api.account, Status.PAUSED, mode=Mode.TEMPORARY, ttl_seconds=3600, ttl_action=TtlAction.PAUSE
    )

    def hangs(machine_id: str, grace: float) -> bool:
        vmhost.driver.resume(machine_id)
        raise NO

    monkeypatch.setattr(vmhost.driver, "shutdown", hangs)
    power.workspace_stop(workspace=row, actor="owner")
    vmhost.settle()
    assert Workspace.objects.get(pk=row.pk).status == "running"
    assert fault_cases.inconsistencies(vmhost, row.pk) == []
