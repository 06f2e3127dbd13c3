"""The vmhost process dies, machines die, Redis goes away: nothing is left over, and no workspace stays in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connections
from django.utils import timezone

from tests import environment
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import live_operations, make_host, make_workspace
from vmbackend.driver import Event, EventKind, MachineState, StopReason
from workspaces.models import Activity, Operation, Workspace
from workspaces.models.operation import OperationKind, OperationState
from workspaces.operations import engine, faults, queue, waiting
from workspaces.reconcile.operations import expire
from workspaces.services.delete import workspace_delete
from workspaces.services.power import workspace_start, workspace_stop
from workspaces.states import Status
from workspaces.vmhost import reconcile

pytestmark = pytest.mark.django_db(transaction=True)

CREATE = ["begin", "pull_image", "prepare_machine", "start_machine", "wait_ready", "complete"]
START = ["find_image", "prepare_machine", "start_machine", "wait_ready", "complete"]
STOP = ["shut_down", "complete"]
DELETE = ["remove_machine", "remove_row"]
STEPS = [("create", s) for s in CREATE] + [("start", s) for s in START]
STEPS += [("stop", s) for s in STOP] + [("delete", s) for s in DELETE]
# In the middle of the driver's work.
POINTS = [
    ("create", "prepare:disk"),
    ("create", "prepare:network"),
    ("create", "start:before_run"),
    ("start", "prepare:disk"),
    ("start", "prepare:network"),
    ("start", "start:before_run"),
    ("delete", "delete:destroyed"),
]
AT_REST = {"create": "running", "start": "running", "stop": "stopped", "delete": None}


class Died(BaseException):
    """This process ends here: nothing that handles errors runs."""


@pytest.fixture
def begin(api: Caller, vmhost: FakeHost) -> Callable[[str], str]:
    """Bring a workspace to where an operation of a kind can be queued, and queue it; the bell is held."""

    def make(kind: str) -> str:
        if kind == "create":
            vmhost.hold()
            return api.post("/workspace", {"wait_ready": False}).json()["id"]
        made = api.post("/workspace", {}).json()["workspace"]["id"]
        if kind == "start":
            api.post(f"/workspace/{made}/stop")
        vmhost.settle()
        vmhost.hold()
        service = {"start": workspace_start, "stop": workspace_stop, "delete": workspace_delete}[kind]
        service(workspace=Workspace.objects.get(pk=made), actor="test")
        return made

    return make


def live_through(vmhost: FakeHost) -> None:
    """Release the bells, with the process dying wherever a test lets it; then it is started again."""
    vmhost.release()
    while vmhost.rung:
        try:
            vmhost.rung.pop(0).result(timeout=20)
        except Died:
            vmhost.driver.crash_hook = None
            vmhost.driver.__dict__.pop("_remove", None)
            vmhost.restart()
    vmhost.settle()
    reconcile(vmhost.side)
    vmhost.settle()


def assert_at_rest(vmhost: FakeHost, made: str, status: str | None) -> None:
    assert live_operations() == 0
    row = Workspace.objects.filter(pk=made).first()
    inventory = vmhost.driver.inventory()
    if status is None:
        assert row is None
        assert inventory.ids() == frozenset()
        return
    assert row is not None
    assert (row.status, row.ready) == (status, status == "running")
    assert inventory.ids() == {made}
    assert inventory.domains[made] is (MachineState.RUNNING if status == "running" else MachineState.OFF)


@pytest.mark.parametrize(("kind", "step"), STEPS)
def test_a_process_that_dies_before_a_step_leaves_nothing_half_done(
    vmhost: FakeHost, begin: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    made = begin(kind)
    deaths: list[str] = []

    def die_once(at: str, name: str) -> None:
        if (at, name) == (kind, step) and not deaths:
            deaths.append(name)
            raise Died

    monkeypatch.setattr(faults, "point", die_once)
    live_through(vmhost)
    assert deaths == [step]
    assert_at_rest(vmhost, made, AT_REST[kind])


@pytest.mark.parametrize(("kind", "point"), POINTS)
def test_a_process_that_dies_in_the_drivers_work_leaves_nothing_half_done(
    vmhost: FakeHost, begin: Callable[[str], str], kind: str, point: str
) -> None:
    made = begin(kind)
    deaths: list[str] = []

    def die(at: str) -> None:
        if at == point and not deaths:
            deaths.append(at)
            vmhost.driver._remove = lambda machine_id: None  # a process that is dead removes nothing
            raise Died

    vmhost.driver.crash_hook = die
    live_through(vmhost)
    assert deaths == [point]
    assert_at_rest(vmhost, made, AT_REST[kind])


@pytest.mark.parametrize(("kind", "step"), STEPS)
def test_a_process_that_dies_every_time_ends_in_a_state_to_act_on(
    vmhost: FakeHost, begin: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    made = begin(kind)
    deaths: list[str] = []

    def die(at: str, name: str) -> None:
        if (at, name) == (kind, step) and len(deaths) < 4:
            deaths.append(name)
            raise Died

    monkeypatch.setattr(faults, "point", die)
    live_through(vmhost)
    reconcile(vmhost.side)
    vmhost.settle()
    assert live_operations() == 0
    row = Workspace.objects.filter(pk=made).first()
    ids = vmhost.driver.inventory().ids()
    if kind == "delete":
        assert (row, ids) == (None, frozenset())
    elif kind == "create":
        assert row is not None
        assert (row.status, row.provisioning_state, ids) == ("failed", "failed", frozenset())
        assert row.provisioning_error
    else:
        assert row is not None
        assert row.status in ("running", "stopped")
        alive = vmhost.driver.state(made) is MachineState.RUNNING
        assert alive == (row.status == "running") == row.ready
        assert row.error_message


@pytest.mark.parametrize(("kind", "step"), STEPS)
def test_a_machine_that_is_killed_before_a_step(
    vmhost: FakeHost, begin: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    made = begin(kind)
    reached: list[str] = []

    def kill_once(at: str, name: str) -> None:
        if (at, name) == (kind, step) and not reached:
            reached.append(name)
            if vmhost.driver.state(made) is MachineState.RUNNING:
                vmhost.driver.kill(made)

    monkeypatch.setattr(faults, "point", kill_once)
    live_through(vmhost)
    reconcile(vmhost.side)
    vmhost.settle()
    assert reached == [step]
    status = AT_REST[kind]
    if (kind, step) in (("create", "complete"), ("start", "complete")):
        status = "stopped"  # it had been ready; then its end counts
    assert_at_rest(vmhost, made, status)


def test_a_restart_in_a_cancelled_creation_follows_with_the_delete(
    vmhost: FakeHost, begin: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = begin("create")
    deaths: list[str] = []

    def die(kind: str, name: str) -> None:
        if name == "start_machine" and not deaths:
            deaths.append(name)
            workspace_delete(workspace=Workspace.objects.get(pk=made), actor="test")
            raise Died

    monkeypatch.setattr(faults, "point", die)
    live_through(vmhost)
    assert_at_rest(vmhost, made, None)


def test_operations_that_a_living_process_holds_are_not_taken_from_it(
    vmhost: FakeHost, begin: Callable[[str], str]
) -> None:
    made = begin("start")
    vmhost.driver.delays = {"start": 0.4}
    vmhost.release()
    time.sleep(0.15)
    for _ in range(3):
        reconcile(vmhost.side)
    vmhost.settle()
    assert Operation.objects.get(kind="start").attempt == 1
    assert_at_rest(vmhost, made, "running")


def test_two_engines_run_one_operation_once(vmhost: FakeHost, begin: Callable[[str], str]) -> None:
    begin("create")
    operation = Operation.objects.get()
    vmhost.driver.delays = {"prepare": 0.05}
    prepared: list[str] = []
    vmhost.driver.crash_hook = prepared.append

    def run(_: int) -> None:
        try:
            engine.run(operation.pk, vmhost.side)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(run, range(12)))
    operation.refresh_from_db()
    assert (operation.state, operation.attempt) == (OperationState.SUCCEEDED, 1)
    assert prepared.count("prepare:disk") == 1
    assert Activity.objects.filter(event="started").count() == 1


def test_a_bell_that_nobody_heard_is_rung_again(vmhost: FakeHost, begin: Callable[[str], str]) -> None:
    made = begin("create")
    assert vmhost.held is not None
    vmhost.held.clear()  # lost
    vmhost.release()
    vmhost.side.beat()
    assert Workspace.objects.get(pk=made).status == "queued"  # not yet: it may be on its way
    Operation.objects.update(rung_at=timezone.now() - timedelta(seconds=6))
    vmhost.side.beat()
    vmhost.settle()
    assert_at_rest(vmhost, made, "running")


@pytest.mark.parametrize("kind", ["create", "start", "stop", "delete"])
@pytest.mark.parametrize("claimed", [False, True])
def test_an_operation_past_its_deadline_ends_in_a_state_to_act_on(
    api: Caller, vmhost: FakeHost, begin: Callable[[str], str], kind: str, claimed: bool
) -> None:
    made = begin(kind)
    operation = Operation.objects.get(kind=kind, state=OperationState.QUEUED)
    if claimed:
        assert queue.claim(operation.pk, "a-token")
    Operation.objects.filter(pk=operation.pk).update(deadline_at=timezone.now() - timedelta(seconds=1))
    assert expire() == 1
    assert expire() == 0
    row = Workspace.objects.get(pk=made)
    expected = {"create": "failed", "start": "stopped", "stop": "running", "delete": "deleting"}
    assert row.status == expected[kind]
    assert (row.error_code if kind != "delete" else "deadline_exceeded") == "deadline_exceeded"
    operation.refresh_from_db()
    assert (operation.state, operation.error_code) == (OperationState.FAILED, "deadline_exceeded")
    vmhost.release()
    vmhost.settle()
    if kind == "delete":
        reconcile(vmhost.side)
        vmhost.settle()
    elif kind == "create":
        assert api.post(f"/workspace/{made}/provisioning/retry").status_code == 202
        vmhost.settle()
    else:
        assert api.post(f"/workspace/{made}/{kind}").status_code == 200
    assert_at_rest(vmhost, made, AT_REST[kind])


def test_a_holder_that_comes_too_late_changes_nothing(
    vmhost: FakeHost, begin: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = begin("start")

    def overtake(kind: str, name: str) -> None:
        if (kind, name) == ("start", "complete"):
            Operation.objects.filter(kind="start").update(deadline_at=timezone.now() - timedelta(seconds=1))
            expire()

    monkeypatch.setattr(faults, "point", overtake)
    live_through(vmhost)
    assert_at_rest(vmhost, made, "stopped")
    assert Workspace.objects.get().error_code == "deadline_exceeded"


# What happens to machines by themselves


@pytest.fixture
def running(api: Caller, vmhost: FakeHost) -> Callable[..., str]:
    def make(**config: object) -> str:
        made = api.post("/workspace", {"config": config}).json()["workspace"]["id"]
        vmhost.settle()
        return made

    return make


def eventually(made: str, status: str) -> Workspace:
    until = time.monotonic() + 5
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
    assert (row.last_exit_code, row.last_exit_reason, row.user_requested_stop, row.ready) == (
        code,
        "exited",
        False,
        False,
    )
    assert Activity.objects.filter(workspace_id=made).first().detail.endswith(f"exit code {code}.")


@pytest.mark.parametrize(
    ("happens", "status", "reason", "word"),
    [
        ("kill", "stopped", "crashed", "died"),
        ("panic", "stopped", "panicked", "kernel"),
        ("vanish", "lost", "lost", "vanished"),
    ],
)
def test_a_machine_ends_by_itself(
    vmhost: FakeHost, running: Callable[..., str], happens: str, status: str, reason: str, word: str
) -> None:
    made = running()
    getattr(vmhost.driver, happens)(made)
    row = eventually(made, status)
    assert (row.last_exit_reason, row.ready, row.started_at) == (reason, False, None)
    entry = Activity.objects.filter(workspace_id=made).first()
    assert entry is not None
    assert entry.event == reason
    assert word in entry.detail


@pytest.mark.parametrize(("happens", "status"), [("kill", "stopped"), ("vanish", "lost")])
def test_what_happened_while_vmhost_was_away_is_found_at_its_start(
    vmhost: FakeHost, running: Callable[..., str], happens: str, status: str
) -> None:
    made = running()
    vmhost.side.stop()
    getattr(vmhost.driver, happens)(made)
    vmhost.start()
    reconcile(vmhost.side)
    row = Workspace.objects.get(pk=made)
    assert (row.status, row.ready) == (status, False)


def test_an_event_that_a_later_start_has_overtaken_changes_nothing(
    api: Caller, vmhost: FakeHost, running: Callable[..., str]
) -> None:
    """Events come at least once, and may come late."""
    made = running()
    for reason in (StopReason.SHUTDOWN, StopReason.CRASHED, StopReason.LOST):
        vmhost.side._events.put(Event(made, EventKind.STOPPED, reason))
    vmhost.driver.exit(other := running(cmd=["x"]), 0)
    eventually(other, "stopped")  # so the ones before it were taken
    row = Workspace.objects.get(pk=made)
    assert (row.status, row.ready) == ("running", True)


def test_stopping_and_starting_in_quick_turns_never_misleads(api: Caller, vmhost: FakeHost, running) -> None:
    made = running()
    for _ in range(10):
        assert api.post(f"/workspace/{made}/stop").status_code == 200
        assert api.post(f"/workspace/{made}/start").json()["workspace"]["info"]["status"] == "running"
    time.sleep(0.05)
    assert_at_rest(vmhost, made, "running")


def test_remove_on_exit_removes_after_an_exit_and_a_crash_but_not_after_a_stop_or_a_loss(
    api: Caller, vmhost: FakeHost, running: Callable[..., str]
) -> None:
    exited, killed, lost, stopped = (running(remove_on_exit=True, cpus=0.1) for _ in range(4))
    vmhost.driver.exit(exited, 1)
    vmhost.driver.kill(killed)
    vmhost.driver.vanish(lost)
    api.post(f"/workspace/{stopped}/stop")
    eventually(exited, "gone")
    eventually(killed, "gone")
    eventually(lost, "lost")
    vmhost.settle()
    assert set(Workspace.objects.values_list("pk", flat=True)) == {lost, stopped}
    assert vmhost.driver.inventory().ids() == {lost, stopped}


def test_events_of_machines_that_are_nobodys_are_ignored(vmhost: FakeHost, running: Callable[..., str]) -> None:
    vmhost.side._events.put(Event("ws_nobody", EventKind.STOPPED, StopReason.CRASHED))
    made = running()
    vmhost.driver.kill(made)
    eventually(made, "stopped")


def test_rows_and_machines_that_disagree_are_put_right(vmhost: FakeHost, running: Callable[..., str]) -> None:
    stopped, failed, stuck, creating = (running(cpus=0.1) for _ in range(4))
    Workspace.objects.filter(pk=stopped).update(status="stopped", ready=False)
    Workspace.objects.filter(pk=failed).update(status="failed", ready=False)
    Workspace.objects.filter(pk=stuck).update(status="stopping", ready=False)
    Workspace.objects.filter(pk=creating).update(status="creating", ready=False, provisioning_state="running")
    assert reconcile(vmhost.side) == 4
    reconcile(vmhost.side)
    assert vmhost.driver.state(stopped) is MachineState.OFF
    assert vmhost.driver.state(failed) is MachineState.ABSENT
    rows = {row.pk: row for row in Workspace.objects.all()}
    assert (rows[stuck].status, rows[stuck].ready, rows[creating].status) == ("running", True, "failed")
    assert vmhost.driver.inventory().ids() == {stopped, stuck}
    assert reconcile(vmhost.side) == 0


# Leftovers


def test_leftovers_are_removed_after_the_grace_time(
    vmhost: FakeHost, running: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = running()
    vmhost.driver.leave_behind("ws_leftover", "directories", "taps", "firewall")
    vmhost.driver.leave_behind("ws_tap_only", "taps")
    monkeypatch.setattr(settings.ENV, "leftover_grace_seconds", 0.2)
    reconcile(vmhost.side)
    assert vmhost.driver.inventory().ids() == {made, "ws_leftover", "ws_tap_only"}
    time.sleep(0.25)
    reconcile(vmhost.side)
    assert vmhost.driver.inventory().ids() == {made}


def test_a_leftover_that_found_its_owner_meanwhile_stays(
    api: Caller, vmhost: FakeHost, running: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Workspace.objects.get(pk=running()).host
    vmhost.driver.leave_behind("ws_late", "directories")
    monkeypatch.setattr(settings.ENV, "leftover_grace_seconds", 0.1)
    reconcile(vmhost.side)
    make_workspace(api.account, id="ws_late", host=host, status=Status.STOPPED)
    time.sleep(0.15)
    reconcile(vmhost.side)
    assert "ws_late" in vmhost.driver.inventory().ids()


def test_no_more_leftovers_are_removed_an_hour_than_the_cap(vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.ENV, "leftover_removals_per_hour", 3)
    for number in range(5):
        vmhost.driver.leave_behind(f"ws_{number}", "taps")
    for _ in range(3):
        reconcile(vmhost.side)
        assert len(vmhost.driver.inventory().ids()) == 2
    vmhost.side.removals = [at - 3601 for at in vmhost.side.removals]
    reconcile(vmhost.side)
    assert vmhost.driver.inventory().ids() == frozenset()


def test_what_belongs_to_a_workspace_of_another_host_here_is_removed_and_that_row_untouched(
    api: Caller, vmhost: FakeHost
) -> None:
    """A creation that was retried on another host leaves its first place to the sweep."""
    row = make_workspace(api.account, host=make_host("elsewhere"), ip="10.200.0.9")
    vmhost.driver.leave_behind(row.pk, "taps")
    reconcile(vmhost.side)
    assert vmhost.driver.inventory().ids() == frozenset()
    row.refresh_from_db()
    assert (row.status, row.ready) == ("running", True)


# Redis away


@pytest.fixture
def without_redis() -> Iterator[None]:
    """The tests' Redis is killed, and is there again afterwards."""
    process = environment._redis.pop()
    process.kill()
    process.wait()
    environment.SOCKET.unlink(missing_ok=True)
    yield
    environment._redis.append(environment.start_redis())


def test_a_request_is_answered_by_the_row_without_redis(api: Caller, vmhost: FakeHost, without_redis: None) -> None:
    began = time.monotonic()
    answer = api.post("/workspace", {})
    assert answer.status_code == 201
    path = f"/workspace/{answer.json()['workspace']['id']}"
    assert api.post(f"{path}/stop").json()["workspace"]["info"]["status"] == "stopped"
    vmhost.settle()
    answer = api.get(f"{path}/logs")
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    for bell in vmhost.rung:
        assert bell.exception(timeout=10)  # the host could not send the log either
    vmhost.rung.clear()
    assert api.delete(path).status_code == 200
    assert time.monotonic() - began < 10
    assert api.client.get("/healthz").json() == {"success": True, "database": True, "redis": False}


def test_a_bell_that_cannot_ring_raises_nothing(api: Caller, without_redis: None) -> None:
    row = make_workspace(api.account, host=make_host(), status=Status.STOPPED)
    operation = queue.enqueue(row, OperationKind.START, actor="test")
    assert Operation.objects.get(pk=operation.pk).state == OperationState.QUEUED
    waiting.announce(operation.pk)
    assert waiting.wait(operation, 0.2) is None


def test_too_many_waiters_are_answered_at_once(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import BoundedSemaphore

    places = BoundedSemaphore(1)
    places.acquire()
    monkeypatch.setattr(waiting, "_places", lambda: places)
    row = make_workspace(api.account, host=make_host(), status=Status.STOPPED)
    operation = queue.enqueue(row, OperationKind.START, actor="test")
    began = time.monotonic()
    assert waiting.wait(operation, 30) is None
    assert time.monotonic() - began < 1


def test_a_hypervisor_that_does_not_answer_is_told_before_anything_is_made(api: Caller, vmhost: FakeHost) -> None:
    from vmbackend.errors import BackendUnavailable

    vmhost.driver.fail_next("state", BackendUnavailable("The hypervisor is not connected."))
    vmhost.side.beat()
    answer = api.post("/workspace", {})
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    vmhost.side.beat()
    assert api.post("/workspace", {}).status_code == 201
