"""The state tables of the specification (Workspace power and lifecycle, Workspace provisioning), row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event
from typing import Any

import pytest
from django.utils import timezone

from common.errors import DomainError, InvalidState
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.fault_cases import CASES, Case
from tests.workspaces.rows import make_host, make_workspace
from workspaces import power, reinstall
from workspaces.crud.services import workspace_delete
from workspaces.errors import OperationInProgress, VmMissing
from workspaces.host import faults
from workspaces.lifecycle import services as lifecycle
from workspaces.models import Operation, Workspace
from workspaces.resources import services as resources
from workspaces.states import ALLOWED, TRANSITIONAL, Status

pytestmark = pytest.mark.django_db(transaction=True)

RUNNING, STOPPED, PAUSED, SLEEPING = Status.RUNNING, Status.STOPPED, Status.PAUSED, Status.SLEEPING
LOST, FAILED, DESTROYED = Status.LOST, Status.FAILED, Status.DESTROYED

Outcome = Status | type[DomainError] | None  # it changes to; it is refused; it changes nothing
Row = dict[Status, Outcome]


def rest(outcome: Outcome, **others: Outcome) -> Row:
    """`outcome` from every state at rest but for the `others`; nothing is done while something is in flight."""
    row: Row = dict.fromkeys((RUNNING, STOPPED, PAUSED, SLEEPING, LOST, FAILED, DESTROYED), outcome)
    row |= dict.fromkeys(TRANSITIONAL, OperationInProgress)
    return row | {Status(name): value for name, value in others.items()}


WOKEN: dict[str, Outcome] = {"paused": Status.RESUMING, "sleeping": Status.WAKING}
SERVICES: dict[str, tuple[Callable[..., Any], Row]] = {
    "start": (
        power.workspace_start,
        rest(InvalidState, running=None, stopped=Status.STARTING, lost=Status.STARTING, destroyed=VmMissing, **WOKEN),
    ),
    "start with force": (
        lambda **options: power.workspace_start(force=True, **options),
        rest(Status.STARTING, failed=Status.QUEUED, destroyed=VmMissing, **WOKEN),
    ),
    "stop": (
        power.workspace_stop,
        rest(InvalidState, stopped=None, **dict.fromkeys(("running", "paused", "sleeping"), Status.STOPPING)),
    ),
    "restart": (power.workspace_restart, rest(InvalidState, running=Status.RESTARTING)),
    "pause": (power.workspace_pause, rest(InvalidState, running=Status.PAUSING)),
    "resume": (power.workspace_resume, rest(InvalidState, running=None, **WOKEN)),
    "sleep": (power.workspace_sleep, rest(InvalidState, running=Status.SUSPENDING)),
    "wake": (power.workspace_wake, rest(InvalidState, running=None, sleeping=Status.WAKING, waking=None)),
    "reinstall": (
        reinstall.workspace_reinstall,
        rest(Status.REINSTALLING, failed=VmMissing, destroyed=VmMissing),
    ),
    "destroy": (lifecycle.workspace_destroy, rest(Status.STOPPING, destroyed=None)),
    "apply": (
        lambda **options: resources.resources_update(changes={"cpu_millis": 200}, apply=True, **options),
        rest(None, running=Status.RESIZING, destroyed=VmMissing),
    ),
    "resize": (
        lambda **options: resources.overlay_resize(size_mb=128, **options),
        rest(InvalidState, running=Status.RESIZING, stopped=Status.RESIZING, destroyed=VmMissing),
    ),
    "delete": (
        lambda **options: workspace_delete(**options)[0],
        dict.fromkeys(Status, Status.DELETING),
    ),
}


@pytest.mark.parametrize("name", list(SERVICES))
def test_every_operation_from_every_state(api: Caller, vmhost: FakeHost, name: str) -> None:
    service, table = SERVICES[name]
    assert set(table) == set(Status)
    vmhost.hold_tasks()
    assert {status: outcome_of(api, service, status) for status in Status} == table


def outcome_of(api: Caller, service: Callable[..., Any], status: Status) -> Outcome:
    row = make_workspace(api.account, host=make_host(), status=status)
    try:
        operation = service(workspace=row, actor="owner")
    except DomainError as exc:
        return refused(row, exc)
    finally:
        Workspace.objects.filter(pk=row.pk).update(cpu_millis=0, memory_mb=0, disk_size_mb=0)
    row.refresh_from_db()
    if operation is None:
        assert row.status == status
        return None
    assert (operation.workspace_id, row.ready) == (row.pk, False)
    return Status(row.status)


def refused(row: Workspace, why: DomainError) -> Outcome:
    before = row.status
    row.refresh_from_db()
    assert (row.status, Operation.objects.filter(workspace=row).count()) == (before, 0)
    if isinstance(why, InvalidState | OperationInProgress):
        assert why.details["status"] == before
    return type(why)


def test_nothing_follows_deleting_and_delete_follows_everything() -> None:
    assert ALLOWED[Status.DELETING] == set(Status)
    assert all(Status.DELETING not in allowed for to, allowed in ALLOWED.items() if to is not Status.DELETING)


def test_every_state_in_between_can_end_in_every_state_at_rest_with_a_machine() -> None:
    """Whatever the machine is after an operation failed, the row can say it."""
    power_states = TRANSITIONAL - {Status.QUEUED, Status.CREATING, Status.DELETING}
    for ends in (RUNNING, STOPPED, PAUSED, SLEEPING):
        assert power_states <= ALLOWED[ends]


# The rows, with what is seen during the operation

DURING: dict[str, Status] = {
    "create": Status.CREATING,
    "start": Status.STARTING,
    "forced start": Status.STARTING,
    "stop": Status.STOPPING,
    "stop of a sleeping one": Status.STOPPING,
    "restart": Status.RESTARTING,
    "pause": Status.PAUSING,
    "resume": Status.RESUMING,
    "sleep": Status.SUSPENDING,
    "wake": Status.WAKING,
    "resize running": Status.RESIZING,
    "resize stopped": Status.RESIZING,
    "reinstall": Status.REINSTALLING,
    "reinstall stopped": Status.REINSTALLING,
    "snapshot": RUNNING,
    "snapshot and stop": Status.STOPPING,
    "restore": Status.RESTORING,
    "fork": RUNNING,
    "destroy": Status.STOPPING,
    "delete": Status.DELETING,
}
# Where the machine's process is there at the last step.
PROCESS = {"forced start", "stop", "restart", "pause", "resume", "sleep", "resize running", "destroy"} | {
    "snapshot",
    "snapshot and stop",
    "fork",
}
STOPS = {"stop", "stop of a sleeping one", "snapshot and stop"}


class Hold:
    """Holds an operation at one of its steps until `release` is set."""

    def __init__(self, kind: str, step: str) -> None:
        self.at = (kind, step)
        self.reached, self.release = Event(), Event()

    def __call__(self, kind: str, step: str) -> None:
        if (kind, step) == self.at:
            self.reached.set()
            assert self.release.wait(120)


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], Hold]]:
    made: list[Hold] = []

    def at(kind: str, step: str) -> Hold:
        made.append(Hold(kind, step))
        monkeypatch.setattr(faults, "fault_point", made[-1])
        return made[-1]

    yield at
    for held in made:
        held.release.set()


def shown(api: Caller, key: str) -> dict[str, Any]:
    return dict(api.get(f"/workspace/{key}").json()["workspace"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_read_before_during_and_after(
    api: Caller, vmhost: FakeHost, hold: Callable[[str, str], Hold], case: Case
) -> None:
    key = fault_cases.begin(vmhost, api.account, case)
    held = hold(case.kind, case.steps[0] if case.kind != "create" else "pull_image")
    vmhost.release_tasks()
    assert held.reached.wait(120)
    during = shown(api, key)
    assert (during["info"]["status"], during["ready"]) == (DURING[case.name], DURING[case.name] is RUNNING)
    assert during["info"]["is_running"] is (case.name in PROCESS)
    assert (during["start_time"] is not None) >= during["info"]["is_running"]
    assert listed(api, key)["info"]["status"] == DURING[case.name]
    held.release.set()
    vmhost.settle()
    if case.ends is None:
        assert api.get(f"/workspace/{key}").status_code == 404
        return
    after = shown(api, key)
    assert (after["info"]["status"], after["ready"]) == (case.ends, case.ends is RUNNING)
    alive = case.ends in (RUNNING, PAUSED)
    assert (after["info"]["is_running"], after["start_time"] is not None) == (alive, alive)
    assert after["info"]["user_requested_stop"] is (case.name in STOPS)
    assert fault_cases.inconsistencies(vmhost, key) == []


def listed(api: Caller, key: str) -> dict[str, Any]:
    return next(item for item in api.get("/workspace").json()["workspaces"] if item["id"] == key)


def steps_of_everything() -> Iterator[Any]:
    """Of each operation one step, which moves on by one with each, and the others as a campaign."""
    for number, case in enumerate(each for each in CASES if each.kind != "delete"):
        for place, step in enumerate(case.steps):
            marks = [pytest.mark.campaign] * (place != number % len(case.steps))
            yield pytest.param(case, step, marks=marks, id=f"{case.name}-{step}")


@pytest.mark.parametrize(("case", "step"), list(steps_of_everything()))
def test_a_delete_is_taken_at_every_step_of_everything(
    api: Caller, vmhost: FakeHost, hold: Callable[[str, str], Hold], case: Case, step: str
) -> None:
    key = fault_cases.begin(vmhost, api.account, case)
    held = hold(case.kind, step)
    vmhost.release_tasks()
    assert held.reached.wait(120)
    workspace_delete(workspace=Workspace.objects.get(pk=key), actor="owner")
    assert shown(api, key)["info"]["status"] == "deleting"
    held.release.set()
    vmhost.settle()
    assert not Workspace.objects.filter(pk=key).exists()
    assert fault_cases.inconsistencies(vmhost, key) == []


@pytest.mark.parametrize("name", ["restart", "resize running", "reinstall"])
def test_a_machine_that_was_made_again_has_a_new_start_time(api: Caller, vmhost: FakeHost, name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    key = fault_cases.begin(vmhost, api.account, case)
    began = timezone.now()
    Workspace.objects.update(started_at=began - timedelta(hours=1))
    vmhost.release_tasks()
    vmhost.settle()
    row = Workspace.objects.get(pk=key)
    assert row.started_at is not None
    assert row.started_at >= began


@pytest.mark.parametrize("name", ["pause", "resume", "sleep", "wake", "forced start"])
def test_a_machine_that_goes_on_keeps_its_start_time(api: Caller, vmhost: FakeHost, name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    key = fault_cases.begin(vmhost, api.account, case)
    started = timezone.now() - timedelta(hours=1)
    Workspace.objects.update(started_at=started)
    vmhost.release_tasks()
    vmhost.settle()
    assert Workspace.objects.get(pk=key).started_at == started


# Provisioning


def test_a_creation_that_fails_shows_why_and_can_be_tried_again(api: Caller, vmhost: FakeHost) -> None:
    made = api.post("/workspace", {"image": "registry.test/missing", "slug": "broken"}).json()
    row = shown(api, "broken")
    assert (row["info"]["status"], row["provisioning"]["state"], row["ready"]) == ("failed", "failed", False)
    assert row["provisioning"]["error"]["code"] == "image_not_found"
    assert made["success"] is False
    assert vmhost.driver.inventory().ids() == frozenset()
    vmhost.images._fail = lambda name: None  # type: ignore[method-assign]
    assert api.post("/workspace/broken/provisioning/retry").status_code == 202
    vmhost.settle()
    row = shown(api, "broken")
    assert (row["info"]["status"], row["provisioning"]["state"], row["provisioning"]["attempts"]) == (
        "running",
        "ready",
        2,
    )


def test_a_creation_goes_from_queued_to_running_to_ready(
    api: Caller, vmhost: FakeHost, hold: Callable[[str, str], Hold]
) -> None:
    key = fault_cases.begin(vmhost, api.account, CASES[0])
    seen = [shown(api, key)["provisioning"]["state"]]
    held = hold("create", "wait_ready")
    vmhost.release_tasks()
    assert held.reached.wait(120)
    seen.append(shown(api, key)["provisioning"]["state"])
    held.release.set()
    vmhost.settle()
    row = shown(api, key)
    assert [*seen, row["provisioning"]["state"]] == ["queued", "running", "ready"]
    assert row["provisioning"]["progress"] == 100
