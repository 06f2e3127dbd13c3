"""Power calls: what each does and what it leaves (specification, Lifecycle and power)."""

from __future__ import annotations

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.workspace_states import make, status_of
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, CapacityExceeded
from vmbackend.models import Host
from workspaces.models import Activity, Operation, Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """A running workspace."""
    return api.post("/workspace", {"slug": "the-box"}).json()["workspace"]["id"]


def test_stop_and_start(api: Caller, vmhost: FakeHost, made: str) -> None:
    answer = api.post("/workspace/the-box/stop")
    shown = answer.json()["workspace"]
    assert (answer.status_code, shown["info"]["status"], shown["ready"]) == (200, "stopped", False)
    assert (shown["info"]["user_requested_stop"], shown["uptime"], shown["start_time"]) == (True, 0, None)
    assert vmhost.driver.state(made) is MachineState.OFF
    answer = api.post("/workspace/the-box/start")
    shown = answer.json()["workspace"]
    assert (answer.status_code, shown["info"]["status"], shown["ready"]) == (200, "running", True)
    assert (shown["info"]["user_requested_stop"], shown["info"]["is_running"]) == (False, True)
    assert shown["start_time"] is not None
    assert vmhost.driver.state(made) is MachineState.RUNNING


def test_a_requested_stop_is_shown_while_it_goes_on_and_no_more_when_it_fails(
    api: Caller, vmhost: FakeHost, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def look_and_refuse(machine_id: str, grace: float) -> bool:
        seen.append(api.get("/workspace/the-box").json()["workspace"]["info"])
        raise CapacityExceeded("It does not end.")

    with monkeypatch.context() as patched:
        patched.setattr(vmhost.driver, "shutdown", look_and_refuse)
        shown = api.post("/workspace/the-box/stop").json()
    assert [(info["status"], info["is_running"], info["user_requested_stop"]) for info in seen] == [
        ("stopping", True, True)
    ]
    info = api.get("/workspace/the-box").json()["workspace"]["info"]
    assert (info["status"], info["user_requested_stop"]) == ("running", False), shown


def test_a_stop_keeps_the_disk(api: Caller, vmhost: FakeHost, made: str) -> None:
    api.post("/workspace/the-box/exec", {"cmd": "echo kept > note"})
    api.post("/workspace/the-box/stop")
    api.post("/workspace/the-box/start")
    assert api.post("/workspace/the-box/exec", {"cmd": "cat note"}).json()["stdout"] == "kept\n"


def test_start_on_running_and_stop_on_stopped_change_nothing(api: Caller, made: str) -> None:
    before = api.get("/workspace/the-box").json()["workspace"]
    answer = api.post("/workspace/the-box/start", {"force": False})
    assert answer.status_code == 200
    assert {**answer.json()["workspace"], "uptime": 0} == {**before, "uptime": 0}
    before = api.post("/workspace/the-box/stop").json()["workspace"]
    answer = api.post("/workspace/the-box/stop")
    assert (answer.status_code, answer.json()["workspace"]) == (200, before)
    assert Operation.objects.count() == 2  # the create and one stop


@pytest.mark.parametrize("ready", [True, False])
def test_a_paused_workspace_can_be_started_and_stopped(api: Caller, vmhost: FakeHost, made: str, ready: bool) -> None:
    vmhost.driver.pause(made)
    Workspace.objects.update(status=Status.PAUSED, ready=False)
    answer = api.post(f"/workspace/the-box/{'start' if ready else 'stop'}")
    assert (answer.status_code, answer.json()["workspace"]["ready"]) == (200, ready)
    assert vmhost.driver.state(made) is (MachineState.RUNNING if ready else MachineState.OFF)


def test_a_sleeping_workspace_is_woken_by_start(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.driver.save_externally(made)
    vmhost.settle()
    Workspace.objects.update(status=Status.SLEEPING, ready=False)
    assert api.post("/workspace/the-box/start").json()["workspace"]["info"]["status"] == "running"


def test_a_lost_workspace_can_be_started_again(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.driver.lose_machine(made)
    Workspace.objects.update(status=Status.LOST, ready=False)
    assert api.post("/workspace/the-box/start").json()["workspace"]["info"]["status"] == "running"
    assert vmhost.driver.state(made) is MachineState.RUNNING
    assert not Activity.objects.filter(workspace_id=made, action="disk_lost").exists()


def test_a_start_on_a_host_that_lost_the_files_says_that_the_disk_is_new(
    api: Caller, vmhost: FakeHost, made: str
) -> None:
    vmhost.driver.delete(made)
    Workspace.objects.update(status=Status.LOST, ready=False)
    for _ in range(2):
        assert api.post("/workspace/the-box/start").json()["workspace"]["info"]["status"] == "running"
        api.post("/workspace/the-box/stop")
    assert Activity.objects.filter(workspace_id=made, action="disk_lost").count() == 1


def test_settings_changed_while_running_apply_at_the_next_start(api: Caller, vmhost: FakeHost, made: str) -> None:
    api.put("/workspace/the-box", {"config": {"env": ["NEW=yes"]}})
    api.post("/workspace/the-box/stop")
    api.post("/workspace/the-box/start")
    assert api.post("/workspace/the-box/exec", {"cmd": "echo $NEW"}).json()["stdout"] == "yes\n"


def test_force_starts_a_running_workspace_again_without_harm(api: Caller, vmhost: FakeHost, made: str) -> None:
    shown = api.post("/workspace/the-box/start", {"force": True}).json()["workspace"]
    assert (shown["info"]["status"], shown["ready"]) == ("running", True)
    answer = api.post("/workspace/the-box/start", {"force": "yes"})
    assert (answer.status_code, list(answer.json()["details"])) == (400, ["force"])


def test_the_actor_is_in_the_activity(api: Caller, made: str) -> None:
    api.post("/workspace/the-box/stop")
    entry = Activity.objects.filter(workspace_id=made, action="stopped").get()
    assert entry.actor == "first"  # the name of the credential


def test_a_forced_start_of_a_failed_workspace_tries_its_creation_again(api: Caller, vmhost: FakeHost) -> None:
    api.post("/workspace", {"image": "registry.test/missing", "slug": "broken"})
    assert api.post("/workspace/broken/start").status_code == 409
    vmhost.images._fail = lambda name: None
    answer = api.post("/workspace/broken/start", {"force": True})
    assert (answer.status_code, answer.json()["workspace"]["status"]) == (200, "running")


def test_a_forced_start_of_a_running_workspace_keeps_its_start_time(api: Caller, vmhost: FakeHost) -> None:
    started = api.post("/workspace", {"slug": "awake"}).json()["workspace"]["start_time"]
    assert api.post("/workspace/awake/start", {"force": True}).json()["workspace"]["start_time"] == started


def test_a_restart_ends_with_a_new_run(api: Caller, vmhost: FakeHost, made: str) -> None:
    before = api.get("/workspace/the-box").json()["workspace"]
    api.post("/workspace/the-box/exec", {"cmd": "echo kept > note"})
    answer = api.post("/workspace/the-box/restart")
    shown = answer.json()["workspace"]
    assert (answer.status_code, shown["info"]["status"], shown["ready"]) == (200, "running", True)
    assert shown["info"]["user_requested_stop"] is False
    assert shown["start_time"] > before["start_time"]
    assert (shown["ip"], vmhost.driver.state(made)) == (before["ip"], MachineState.RUNNING)
    assert api.post("/workspace/the-box/exec", {"cmd": "cat note"}).json()["stdout"] == "kept\n"


def test_between_the_halves_of_a_restart_nothing_runs(
    api: Caller, vmhost: FakeHost, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    start = vmhost.driver.start

    def look_and_start(machine_id: str) -> None:
        seen.append(api.get("/workspace/the-box").json()["workspace"])
        start(machine_id)

    monkeypatch.setattr(vmhost.driver, "start", look_and_start)
    assert api.post("/workspace/the-box/restart").status_code == 200
    assert [(w["info"]["status"], w["ready"]) for w in seen] == [("restarting", False)]
    assert [(w["info"]["is_running"], w["uptime"], w["start_time"]) for w in seen] == [(False, 0, None)]
    assert api.get("/workspace/the-box").json()["workspace"]["info"]["is_running"] is True


def test_pause_keeps_the_process_and_resume_lets_it_go_on(api: Caller, vmhost: FakeHost, made: str) -> None:
    started = api.get("/workspace/the-box").json()["workspace"]["start_time"]
    answer = api.post("/workspace/the-box/pause")
    shown = answer.json()["workspace"]
    assert (answer.status_code, shown["info"]["status"], shown["ready"]) == (200, "paused", False)
    assert (shown["info"]["is_running"], shown["start_time"]) == (True, started)
    assert vmhost.driver.state(made) is MachineState.PAUSED
    assert api.post("/workspace/the-box/exec", {"cmd": "true"}).json()["code"] == "vm_not_running"
    answer = api.post("/workspace/the-box/resume")
    shown = answer.json()["workspace"]
    assert (answer.status_code, shown["info"]["status"], shown["ready"]) == (200, "running", True)
    assert (shown["start_time"], vmhost.driver.resync_count(made)) == (started, 1)


@pytest.mark.parametrize(
    ("action", "method", "before", "after"),
    [
        ("pause", "pause", Status.RUNNING, "running"),
        ("resume", "resume", Status.PAUSED, "paused"),
        ("resume", "start", Status.SLEEPING, "sleeping"),
        ("restart", "shutdown", Status.RUNNING, "running"),
        ("restart", "start", Status.RUNNING, "stopped"),
    ],
)
def test_a_failed_operation_leads_to_what_the_machine_is(
    api: Caller, vmhost: FakeHost, action: str, method: str, before: Status, after: str
) -> None:
    made = make(api, vmhost, before)
    vmhost.driver.fail_next(method, BackendUnavailable("The hypervisor is away."), times=3)
    answer = api.post(f"/workspace/{made}/{action}")
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    assert answer.json()["details"] == {"reason": "backend_unavailable"}
    shown = api.get(f"/workspace/{made}").json()["workspace"]
    assert (shown["info"]["status"], shown["ready"]) == (after, after == "running")
    assert shown["info"]["error"]["code"] == "backend_unavailable"
    again = api.post(f"/workspace/{made}/{'start' if after == 'stopped' else action}")
    assert (again.status_code, again.json()["workspace"]["info"]["error"]) == (200, None)


@pytest.mark.parametrize(("action", "before"), [("restart", Status.RUNNING), ("resume", Status.PAUSED)])
def test_a_suspended_namespace_refuses_what_lets_run(
    api: Caller, vmhost: FakeHost, action: str, before: Status
) -> None:
    made = make(api, vmhost, before)
    api.account.namespaces.update(status="suspended", suspended_by_hand=True)
    answer = api.post(f"/workspace/{made}/{action}")
    assert (answer.status_code, answer.json()["code"]) == (403, "namespace_suspended")
    assert status_of(made) == before


def test_a_wake_that_finds_its_memory_spoilt_is_a_cold_start(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.SLEEPING)
    vmhost.driver.corrupt_saved_memory(made)
    assert api.post(f"/workspace/{made}/resume").json()["workspace"]["info"]["status"] == "running"
    events = set(Activity.objects.filter(workspace_id=made).values_list("action", flat=True))
    assert {"memory_lost", "started_cold"} <= events


def test_a_forced_start_on_a_silent_host_is_vm_unavailable(api: Caller, vmhost: FakeHost, made: str) -> None:
    Host.objects.update(problem="The hypervisor does not answer.")
    answer = api.post("/workspace/the-box/start", {"force": True})
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    assert Workspace.objects.get().status == Status.RUNNING


@pytest.mark.parametrize("before", [Status.PAUSED, Status.SLEEPING, Status.LOST, Status.STOPPED])
def test_a_forced_start_runs_whatever_can_run(api: Caller, vmhost: FakeHost, before: Status) -> None:
    made = make(api, vmhost, before)
    answer = api.post(f"/workspace/{made}/start", {"force": True})
    assert (answer.status_code, answer.json()["workspace"]["info"]["status"]) == (200, "running")
