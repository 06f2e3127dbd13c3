"""Every power call from every state (specification, Workspace power and lifecycle; wire contract, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.workspace_states import make, no_free_waiting_place, status_of
from vmbackend.driver import MachineState
from workspaces import power, reinstall
from workspaces.lifecycle import services as lifecycle
from workspaces.models import Operation, Workspace
from workspaces.operations import queue
from workspaces.states import TRANSITIONAL, Status

pytestmark = pytest.mark.django_db(transaction=True)

# What each call makes of each state: the state it leads to, or the code of its 409.
AFTER = {
    "start": {
        "running": "running", "stopped": "running", "paused": "running", "sleeping": "running", "lost": "running",
        "failed": "invalid_state", "destroyed": "vm_missing",
    },
    "stop": {
        "running": "stopped", "stopped": "stopped", "paused": "stopped", "sleeping": "stopped",
        "lost": "invalid_state", "failed": "invalid_state", "destroyed": "invalid_state",
    },
    "restart": {
        "running": "running", "stopped": "invalid_state", "paused": "invalid_state", "sleeping": "invalid_state",
        "lost": "invalid_state", "failed": "invalid_state", "destroyed": "invalid_state",
    },
    "pause": {
        "running": "paused", "stopped": "invalid_state", "paused": "invalid_state", "sleeping": "invalid_state",
        "lost": "invalid_state", "failed": "invalid_state", "destroyed": "invalid_state",
    },
    "resume": {
        "running": "running", "stopped": "invalid_state", "paused": "running", "sleeping": "running",
        "lost": "invalid_state", "failed": "invalid_state", "destroyed": "invalid_state",
    },
    "reinstall": {
        "running": "running", "stopped": "running", "paused": "running", "sleeping": "running", "lost": "running",
        "failed": "vm_missing", "destroyed": "vm_missing",
    },
    "destroy": {
        "running": "destroyed", "stopped": "destroyed", "paused": "destroyed", "sleeping": "destroyed",
        "lost": "destroyed", "failed": "destroyed", "destroyed": "destroyed",
    },
}  # fmt: skip
ROWS = [(action, before, after) for action, states in AFTER.items() for before, after in states.items()]
MACHINE = {
    "running": MachineState.RUNNING,
    "stopped": MachineState.OFF,
    "paused": MachineState.PAUSED,
    "destroyed": MachineState.ABSENT,
}


def call(api: Caller, made: str, action: str) -> Any:
    if action == "destroy":
        return api.delete(f"/workspace/{made}/lifecycle")
    return api.post(f"/workspace/{made}/{action}")


@pytest.mark.parametrize(("action", "before", "after"), ROWS)
def test_each_call_from_each_state(api: Caller, vmhost: FakeHost, action: str, before: str, after: str) -> None:
    made = make(api, vmhost, Status(before))
    answer = call(api, made, action)
    if after in MACHINE:
        assert (answer.status_code, answer.json()["success"]) == (200, True)
        assert status_of(made) == after
        assert vmhost.driver.state(made) is MACHINE[after]
        assert Workspace.objects.get(pk=made).ready is (after == "running")
        if action not in ("destroy", "reinstall"):
            assert answer.json()["workspace"]["info"]["status"] == after
    else:
        assert (answer.status_code, answer.json()["code"]) == (409, after)
        if after == "invalid_state":
            assert answer.json()["details"]["status"] == before
        assert status_of(made) == before
    assert api.delete(f"/workspace/{made}").status_code == 200
    assert vmhost.driver.inventory().ids() == frozenset()


@pytest.mark.parametrize("action", list(AFTER))
@pytest.mark.parametrize("status", sorted(TRANSITIONAL - {Status.DELETING}))
def test_each_call_while_something_goes_on_is_operation_in_progress(
    api: Caller, vmhost: FakeHost, action: str, status: Status
) -> None:
    made = make(api, vmhost, Status.RUNNING)
    Workspace.objects.update(status=status, ready=False)
    answer = call(api, made, action)
    assert (answer.status_code, answer.json()["code"]) == (409, "operation_in_progress")
    assert answer.json()["details"]["status"] == status
    assert status_of(made) == status


@pytest.mark.parametrize(("action", "status"), [("start", "running"), ("stop", "stopped"), ("resume", "running")])
def test_what_is_so_already_queues_nothing(api: Caller, vmhost: FakeHost, action: str, status: str) -> None:
    made = make(api, vmhost, Status(status))
    before, count = api.get(f"/workspace/{made}").json()["workspace"], Operation.objects.count()
    answer = call(api, made, action)
    assert answer.status_code == 200
    assert {**answer.json()["workspace"], "uptime": 0} == {**before, "uptime": 0}
    assert Operation.objects.count() == count


GOING_ON: list[tuple[str, Callable[..., Any], Status, str, bool]] = [
    ("start", power.workspace_start, Status.STOPPED, "starting", False),
    ("stop", power.workspace_stop, Status.RUNNING, "stopping", True),
    ("restart", power.workspace_restart, Status.RUNNING, "restarting", True),
    ("pause", power.workspace_pause, Status.RUNNING, "pausing", True),
    ("resume", power.workspace_resume, Status.PAUSED, "resuming", True),
    ("sleep", power.workspace_sleep, Status.RUNNING, "suspending", True),
    ("wake", power.workspace_resume, Status.SLEEPING, "waking", False),
    ("reinstall", reinstall.workspace_reinstall, Status.STOPPED, "reinstalling", False),
    ("destroy", lifecycle.workspace_destroy, Status.RUNNING, "stopping", True),
]


@pytest.mark.parametrize(("kind", "service", "before", "shown", "process"), GOING_ON, ids=[row[0] for row in GOING_ON])
def test_progress_is_readable_during_the_operation(
    api: Caller, vmhost: FakeHost, kind: str, service: Callable[..., Any], before: Status, shown: str, process: bool
) -> None:
    made = make(api, vmhost, before)
    vmhost.hold_tasks()
    service(workspace=Workspace.objects.get(pk=made), actor="test")
    one = api.get(f"/workspace/{made}").json()["workspace"]
    assert (one["info"]["status"], one["ready"], one["info"]["is_running"]) == (shown, False, process)
    assert api.get("/workspace").json()["workspaces"][0]["info"] == one["info"]
    assert api.get(f"/workspace/{made}/lifecycle").json()["status"] == shown
    assert api.get(f"/workspace/{made}/resources").json()["resources"]["status"] == shown
    vmhost.release_tasks()
    vmhost.settle()
    assert queue.live_operation(Workspace.objects.get(pk=made)) is None
    assert status_of(made) != shown


@pytest.mark.parametrize(
    ("action", "before", "during", "after"),
    [
        ("start", Status.STOPPED, "starting", "running"),
        ("stop", Status.RUNNING, "stopping", "stopped"),
        ("restart", Status.RUNNING, "restarting", "running"),
        ("pause", Status.RUNNING, "pausing", "paused"),
        ("resume", Status.PAUSED, "resuming", "running"),
        ("reinstall", Status.RUNNING, "reinstalling", "running"),
        ("destroy", Status.RUNNING, "stopping", "destroyed"),
    ],
)
def test_what_goes_on_after_the_wait_is_202(
    api: Caller, vmhost: FakeHost, action: str, before: Status, during: str, after: str
) -> None:
    made = make(api, vmhost, before)
    vmhost.hold_tasks()
    with no_free_waiting_place():
        answer = call(api, made, action)
    body = answer.json()
    assert (answer.status_code, body["success"], body["accepted"]) == (202, True, True)
    assert status_of(made) == during
    if action == "reinstall":
        assert (body["reinstalled"], body["running"], body["workspace_id"]) == (False, False, made)
    elif action != "destroy":
        assert body["workspace"]["info"]["status"] == during
    vmhost.release_tasks()
    vmhost.settle()
    assert status_of(made) == after


@pytest.mark.parametrize("action", ["stop", "restart", "pause", "reinstall", "destroy"])
def test_a_delete_takes_a_call_that_waits_away(api: Caller, vmhost: FakeHost, action: str) -> None:
    made = make(api, vmhost, Status.RUNNING)
    vmhost.hold_tasks()
    with no_free_waiting_place():
        assert call(api, made, action).status_code == 202
        assert api.delete(f"/workspace/{made}").status_code == 202
    vmhost.release_tasks()
    vmhost.settle()
    assert not Workspace.objects.exists()
    assert vmhost.driver.inventory().ids() == frozenset()
