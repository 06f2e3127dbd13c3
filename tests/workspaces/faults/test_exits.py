"""Machines end by themselves: each way is distinguished, and none misleads a later start."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.threads import wait_until
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.fault_cases import CASES
from tests.workspaces.faults.injected import Scene
from vmbackend.driver import Event, EventKind, StopReason
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.models import Activity, Workspace
from workspaces.models.workspace import RestartPolicy
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
CASE = {case.name: case for case in CASES}


@pytest.fixture
def running(api: Caller, vmhost: FakeHost) -> Callable[..., str]:
    """A running workspace."""
    return lambda **fields: fault_cases.machine(vmhost, api.account, **fields).pk


def eventually(made: str, status: str) -> Workspace:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        row = Workspace.objects.filter(pk=made).first()
        if (row.status if row else "gone") == status:
            return row or Workspace(pk=made)
        time.sleep(0.01)
    raise AssertionError(f"{made} is {row and row.status}, not {status}")


@pytest.mark.parametrize("code", [0, 3, 137])
def test_the_main_process_ends(vmhost: FakeHost, running: Callable[..., str], code: int) -> None:
    made = running(cmd=["sleep", "9"])
    vmhost.driver.exit(made, code)
    row = eventually(made, "stopped")
    recorded = (row.last_exit_code, row.last_exit_reason, row.user_requested_stop, row.ready)
    assert recorded == (code, "exited", False, False)
    assert Activity.objects.filter(workspace_id=made).first().detail.endswith(f"exit code {code}.")


@pytest.mark.parametrize(
    ("happens", "status", "reason", "word"),
    [
        ("kill", "stopped", "crashed", "died"),
        ("panic", "stopped", "panicked", "kernel"),
        ("lose_machine", "lost", "lost", "vanished"),
    ],
)
@pytest.mark.parametrize("before", [Status.RUNNING, Status.PAUSED])
def test_a_machine_ends_by_itself(
    api: Caller, vmhost: FakeHost, happens: str, status: str, reason: str, word: str, before: Status
) -> None:
    made = fault_cases.machine(vmhost, api.account, before).pk
    getattr(vmhost.driver, happens)(made)
    row = eventually(made, status)
    assert (row.last_exit_reason, row.ready, row.started_at) == (reason, False, None)
    entry = Activity.objects.filter(workspace_id=made).first()
    assert entry is not None
    assert entry.action == reason
    assert word in entry.detail


@pytest.mark.parametrize("before", [Status.RUNNING, Status.PAUSED])
def test_a_machine_that_its_host_puts_to_sleep_is_asleep_and_wakes(
    api: Caller, vmhost: FakeHost, before: Status
) -> None:
    made = fault_cases.machine(vmhost, api.account, before, stop_after=3600).pk
    vmhost.driver.save_externally(made)
    assert eventually(made, "sleeping").memory_expires_at is not None
    assert fault_cases.inconsistencies(vmhost, made) == []
    assert fault_cases.act(vmhost, made) == []


@pytest.mark.parametrize(("happens", "status"), [("kill", "stopped"), ("lose_machine", "lost")])
def test_what_happened_while_vmhost_was_away_is_found_at_its_start(
    vmhost: FakeHost, running: Callable[..., str], happens: str, status: str
) -> None:
    made = running()
    vmhost.runtime.stop()
    getattr(vmhost.driver, happens)(made)
    vmhost.start()
    row = Workspace.objects.get(pk=made)
    assert (row.status, row.ready) == (status, False)


def test_an_event_that_a_later_start_has_overtaken_changes_nothing(
    vmhost: FakeHost, running: Callable[..., str]
) -> None:
    """Events come at least once, and may come late."""
    made = running()
    for reason in (StopReason.SHUTDOWN, StopReason.CRASHED, StopReason.LOST, StopReason.SAVED):
        vmhost.runtime._events.put(Event(made, EventKind.STOPPED, reason))
    vmhost.driver.exit(other := running(cmd=["x"]), 0)
    eventually(other, "stopped")  # so the ones before it were taken
    row = Workspace.objects.get(pk=made)
    assert (row.status, row.ready) == ("running", True)


def test_stopping_and_starting_in_quick_turns_never_misleads(
    api: Caller, vmhost: FakeHost, running: Callable[..., str]
) -> None:
    made = running()
    for _ in range(10):
        assert api.post(f"/workspace/{made}/stop").status_code == 200
        assert api.post(f"/workspace/{made}/start").json()["workspace"]["info"]["status"] == "running"
    time.sleep(0.05)
    assert fault_cases.inconsistencies(vmhost, made) == []
    assert Workspace.objects.get().status == "running"


def test_remove_on_exit_removes_after_an_exit_and_a_crash_but_not_after_a_stop_or_a_loss(
    api: Caller, vmhost: FakeHost, running: Callable[..., str]
) -> None:
    exited, killed, lost, stopped = (running(remove_on_exit=True) for _ in range(4))
    vmhost.driver.exit(exited, 1)
    vmhost.driver.kill(killed)
    vmhost.driver.lose_machine(lost)
    api.post(f"/workspace/{stopped}/stop")
    eventually(exited, "gone")
    eventually(killed, "gone")
    eventually(lost, "lost")
    vmhost.settle()
    assert set(Workspace.objects.values_list("pk", flat=True)) == {lost, stopped}
    assert vmhost.driver.inventory().ids() == {lost, stopped}


def test_events_of_machines_without_a_workspace_are_ignored(vmhost: FakeHost, running: Callable[..., str]) -> None:
    vmhost.runtime._events.put(Event("ws_unknown", EventKind.STOPPED, StopReason.CRASHED))
    made = running()
    vmhost.driver.kill(made)
    eventually(made, "stopped")


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("create", "complete"),
        ("start", "complete"),
        ("restart", "complete"),
        ("pause", "pause_machine"),
        ("pause", "complete"),
        ("resume", "resume_machine"),
        ("resume", "complete"),
        ("sleep", "save_memory"),
        ("wake", "complete"),
    ],
)
@pytest.mark.parametrize("happens", ["kill", "panic"])
def test_a_machine_that_ends_in_an_operation_is_restarted_as_its_policy_says(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch, name: str, step: str, happens: str
) -> None:
    made = fault_cases.begin(vmhost, api.account, CASE[name])
    Workspace.objects.update(restart_policy=RestartPolicy.ON_FAILURE)
    scene = Scene(vmhost, monkeypatch, CASE[name].kind, step, made)

    def end() -> None:
        getattr(vmhost.driver, happens)(made)
        wait_until(lambda: events_are_reported(vmhost))  # before the operation ends

    scene.before(end)
    vmhost.release_tasks()
    vmhost.settle()
    row = eventually(made, "stopped")
    assert (row.last_exit_reason, row.restart_count) == ({"kill": "crashed", "panic": "panicked"}[happens], 1)
    assert row.restart_due_at is not None
    reconcile_rows_and_machines(vmhost.runtime)
    assert fault_cases.inconsistencies(vmhost, made) == []


def events_are_reported(vmhost: FakeHost) -> bool:
    """The driver has delivered all of its events."""
    return not vmhost.driver._store.has_events()


def test_a_command_that_fails_at_once_counts_as_a_failure(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fault_cases.begin(vmhost, api.account, CASE["create"])
    Workspace.objects.update(restart_policy=RestartPolicy.ON_FAILURE, cmd=["false"])
    scene = Scene(vmhost, monkeypatch, "create", "wait_ready", made)
    scene.before(lambda: vmhost.driver.exit(made, 1))
    vmhost.release_tasks()
    vmhost.settle()
    row = eventually(made, "stopped")
    assert (row.last_exit_reason, row.last_exit_code, row.restart_count) == ("exited", 1, 1)


def test_remove_on_exit_holds_for_a_machine_that_ends_while_it_is_paused(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fault_cases.begin(vmhost, api.account, CASE["pause"])
    Workspace.objects.update(remove_on_exit=True)
    Scene(vmhost, monkeypatch, "pause", "pause_machine", made).before(lambda: vmhost.driver.kill(made))
    vmhost.release_tasks()
    vmhost.settle()
    eventually(made, "gone")
    vmhost.settle()
    assert fault_cases.inconsistencies(vmhost, made) == []
