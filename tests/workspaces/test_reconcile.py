"""Rows and machines that disagree are corrected, both ways, and orphans are removed."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable

import pytest
from django.conf import settings

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.rows import make_host, make_workspace
from vmbackend.driver import Inventory, MachineState
from vmbackend.errors import BackendUnavailable
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.host.reconcile import machines
from workspaces.host.runtime import HostRuntime
from workspaces.models import Activity, Workspace
from workspaces.states import CREATING, TRANSITIONAL, Provisioning, Status

pytestmark = pytest.mark.django_db(transaction=True)

RUNNING, PAUSED, ASLEEP = MachineState.RUNNING, MachineState.PAUSED, MachineState.ASLEEP
OFF, ABSENT = MachineState.OFF, MachineState.ABSENT
MACHINES = [RUNNING, PAUSED, ASLEEP, OFF, ABSENT]
# What a row at rest becomes where its machine is something else. The machine follows it.
BECOMES: dict[Status, dict[MachineState, Status | None]] = {
    Status.RUNNING: {
        RUNNING: Status.RUNNING,
        PAUSED: Status.RUNNING,
        ASLEEP: Status.SLEEPING,
        OFF: Status.STOPPED,
        ABSENT: Status.LOST,
    },
    Status.PAUSED: {
        RUNNING: Status.PAUSED,
        PAUSED: Status.PAUSED,
        ASLEEP: Status.SLEEPING,
        OFF: Status.STOPPED,
        ABSENT: Status.LOST,
    },
    Status.SLEEPING: {
        RUNNING: Status.RUNNING,
        PAUSED: Status.RUNNING,
        ASLEEP: Status.SLEEPING,
        OFF: Status.STOPPED,
        ABSENT: Status.STOPPED,
    },
    # It vanished and is there again: its end was not requested.
    Status.LOST: {
        RUNNING: Status.RUNNING,
        PAUSED: Status.RUNNING,
        ASLEEP: Status.SLEEPING,
        OFF: Status.LOST,
        ABSENT: Status.LOST,
    },
    Status.STOPPED: dict.fromkeys(MACHINES, Status.STOPPED),
    Status.FAILED: dict.fromkeys(MACHINES, Status.FAILED),
    Status.DESTROYED: dict.fromkeys(MACHINES, Status.DESTROYED),
    # An operation that no longer exists: the row is what the machine is.
    **{
        status: {
            RUNNING: Status.RUNNING,
            PAUSED: Status.PAUSED,
            ASLEEP: Status.SLEEPING,
            OFF: Status.STOPPED,
            ABSENT: Status.STOPPED,
        }
        for status in TRANSITIONAL - CREATING - {Status.DELETING}
    },
    **{status: dict.fromkeys(MACHINES, Status.FAILED) for status in CREATING},
    Status.DELETING: dict.fromkeys(MACHINES),
}


def with_machine(host: FakeHost, api: Caller, status: Status, state: MachineState) -> str:
    """A row in `status` whose machine is in `state`."""
    begins = {RUNNING: Status.RUNNING, PAUSED: Status.PAUSED, ASLEEP: Status.SLEEPING}.get(state, Status.STOPPED)
    row = fault_cases.machine(host, api.account, begins)
    if state is ABSENT:
        host.driver.delete(row.pk)
    fields = {"provisioning_state": Provisioning.RUNNING} if status in CREATING else {}
    if status in (Status.RUNNING, Status.PAUSED) and row.started_at is None:
        fields["started_at"] = row.created_at
    Workspace.objects.filter(pk=row.pk).update(status=status, ready=status == Status.RUNNING, **fields)
    return row.pk


def test_every_state_is_in_the_table() -> None:
    assert set(BECOMES) == set(Status)


@pytest.mark.parametrize("status", list(Status))
def test_rows_and_machines_that_disagree_are_put_right(api: Caller, vmhost: FakeHost, status: Status) -> None:
    made = {state: with_machine(vmhost, api, status, state) for state in MACHINES}
    vmhost.driver._store.drop_events()
    for _ in range(2):
        reconcile_rows_and_machines(vmhost.runtime)
        vmhost.settle()
    rows = Workspace.objects.in_bulk()
    found = {state: rows[key].status if key in rows else None for state, key in made.items()}
    assert found == BECOMES[status]
    assert fault_cases.inconsistencies(vmhost, *made.values()) == []
    for state, key in made.items():
        reported = Activity.objects.filter(workspace_id=key).exclude(detail="").exists()
        agrees = (status, state) in AGREES or (status in (Status.STOPPED, Status.LOST) and state in (OFF, ABSENT))
        assert reported is not agrees or status not in fault_cases.MACHINE_OF
    assert reconcile_rows_and_machines(vmhost.runtime) == 0


AGREES = {
    (Status.RUNNING, RUNNING),
    (Status.PAUSED, PAUSED),
    (Status.SLEEPING, ASLEEP),
    (Status.FAILED, ABSENT),
    (Status.DESTROYED, ABSENT),
}


def test_a_machine_that_runs_is_adopted_at_the_start_of_its_host(api: Caller, vmhost: FakeHost) -> None:
    row = fault_cases.machine(vmhost, api.account)
    vmhost.restart()
    row.refresh_from_db()
    assert (row.status, row.ready, vmhost.driver.state(row.pk)) == ("running", True, RUNNING)
    assert not Activity.objects.filter(workspace_id=row.pk).exists()
    vmhost.driver.kill(row.pk)  # its events are heard again
    until = time.monotonic() + 120
    while row.status != "stopped" and time.monotonic() < until:
        time.sleep(0.01)
        row.refresh_from_db()
    assert row.last_exit_reason == "crashed"


@pytest.mark.parametrize(
    ("end", "reason", "code"),
    [
        (lambda host, key: host.driver.exit(key, 3), "exited", 3),
        (lambda host, key: host.driver.shutdown(key, 1), "exited", None),
        (lambda host, key: host.driver.kill(key), "crashed", None),
    ],
)
def test_an_end_whose_event_is_late_keeps_its_reason_and_exit_code(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch, end: Callable, reason: str, code: int | None
) -> None:
    row = fault_cases.machine(vmhost, api.account, cmd=["serve"])
    with monkeypatch.context() as patch:
        patch.setattr(vmhost.driver._store, "due_events", list)
        end(vmhost, row.pk)
        reconcile_rows_and_machines(vmhost.runtime)
    row.refresh_from_db()
    assert (row.status, row.last_exit_reason, row.last_exit_code) == ("stopped", reason, code)


def test_one_machine_that_cannot_be_asked_does_not_hold_up_the_others(api: Caller, vmhost: FakeHost) -> None:
    first, second = (with_machine(vmhost, api, Status.STOPPED, RUNNING) for _ in range(2))
    vmhost.driver.fail_next("destroy", BackendUnavailable("Just now it is busy."))
    reconcile_rows_and_machines(vmhost.runtime)
    assert [vmhost.driver.state(key) for key in (first, second)].count(OFF) == 1
    reconcile_rows_and_machines(vmhost.runtime)
    assert [vmhost.driver.state(key) for key in (first, second)] == [OFF, OFF]


# Orphans


@pytest.mark.parametrize("kind", ["directories", "taps", "firewall", "saved"])
def test_an_orphan_of_each_kind_is_removed(vmhost: FakeHost, kind: str) -> None:
    vmhost.driver.create_orphans("ws_orphan", kind)
    assert reconcile_rows_and_machines(vmhost.runtime) == 1
    assert vmhost.driver.inventory().ids() == frozenset()


def test_a_running_machine_without_a_row_is_ended_and_removed(api: Caller, vmhost: FakeHost) -> None:
    row = fault_cases.machine(vmhost, api.account)
    row.delete()
    assert reconcile_rows_and_machines(vmhost.runtime) == 1
    assert vmhost.driver.inventory().ids() == frozenset()


def test_orphans_stay_for_the_grace_time(api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fault_cases.machine(vmhost, api.account).pk
    vmhost.driver.create_orphans("ws_orphan", "directories", "taps", "firewall")
    vmhost.driver.create_orphans("ws_tap_only", "taps")
    monkeypatch.setattr(settings.ENV, "orphan_grace_seconds", 0.2)
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.inventory().ids() == {made, "ws_orphan", "ws_tap_only"}
    time.sleep(0.25)
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.inventory().ids() == {made}


def test_an_orphan_whose_row_appeared_stays(api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    vmhost.driver.create_orphans("ws_late", "directories")
    monkeypatch.setattr(settings.ENV, "orphan_grace_seconds", 0.1)
    reconcile_rows_and_machines(vmhost.runtime)
    make_workspace(api.account, id="ws_late", host=make_host(), status=Status.STOPPED)
    time.sleep(0.15)
    reconcile_rows_and_machines(vmhost.runtime)
    assert "ws_late" in vmhost.driver.inventory().ids()


def test_no_more_orphans_are_removed_an_hour_than_the_cap(vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.ENV, "orphan_removals_per_hour", 3)
    for number in range(5):
        vmhost.driver.create_orphans(f"ws_{number}", "taps")
    for _ in range(3):
        reconcile_rows_and_machines(vmhost.runtime)
        assert len(vmhost.driver.inventory().ids()) == 2
    vmhost.runtime._removals = [at - 3601 for at in vmhost.runtime._removals]
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.inventory().ids() == frozenset()


def test_an_orphan_that_cannot_be_removed_does_not_hold_up_the_others(vmhost: FakeHost) -> None:
    for number in range(3):
        vmhost.driver.create_orphans(f"ws_{number}", "taps")
    vmhost.driver.fail_next("delete", BackendUnavailable("Not this one."))
    reconcile_rows_and_machines(vmhost.runtime)
    assert len(vmhost.driver.inventory().ids()) == 1
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.inventory().ids() == frozenset()


def test_what_belongs_to_a_workspace_of_another_host_here_is_removed_and_that_row_untouched(
    api: Caller, vmhost: FakeHost
) -> None:
    """A creation that was retried on another host leaves its first place to the sweep."""
    row = make_workspace(api.account, host=make_host("elsewhere"), ip="10.200.0.9")
    vmhost.driver.create_orphans(row.pk, "taps")
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.inventory().ids() == frozenset()
    row.refresh_from_db()
    assert (row.status, row.ready) == ("running", True)


def test_a_workspace_that_is_deleted_meanwhile_does_not_end_the_pass(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host()
    rows = [make_workspace(api.account, host=host, ip=f"10.200.1.{n}", status=Status.RUNNING) for n in range(2, 5)]
    state, left = vmhost.driver.state, {row.pk for row in rows}

    def delete_another(machine_id: str) -> MachineState:
        if machine_id in left and len(left) == 3:
            gone = min(left - {machine_id})
            left.discard(gone)
            Workspace.objects.filter(pk=gone).delete()
        return state(machine_id)

    monkeypatch.setattr(vmhost.driver, "state", delete_another)
    reconcile_rows_and_machines(vmhost.runtime)
    assert dict(Workspace.objects.values_list("pk", "status")) == dict.fromkeys(left, Status.LOST)
    assert len(left) == 2


def test_the_rows_of_a_host_are_not_held_all_at_once(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host()
    for number in range(2, 12):
        make_workspace(api.account, host=host, ip=f"10.200.1.{number}", status=Status.RUNNING)
    reconcile, alive, most = machines._reconcile_row, weakref.WeakSet[Workspace](), []

    def counted(runtime: HostRuntime, row: Workspace, inventory: Inventory) -> bool:
        alive.add(row)
        most.append(len(alive))
        return reconcile(runtime, row, inventory)

    monkeypatch.setattr(machines, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(machines, "_reconcile_row", counted)
    reconcile_rows_and_machines(vmhost.runtime)
    assert Workspace.objects.filter(status=Status.LOST).count() == len(most) == 10
    assert max(most) <= 4  # two parts, as one is read
