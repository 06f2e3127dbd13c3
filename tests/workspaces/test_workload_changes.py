"""Workloads that are read and changed while a workspace runs (wire contract, section 3: added routes)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connections

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import make
from vmbackend.backend import guest_pool
from vmbackend.errors import GuestKitOutdated, GuestUnreachable
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.commands import refusal_error
from vmbackend.guest.pool import GuestPool
from vmbackend.guest.session import GuestAddress
from vmbackend.guest.workloads import WorkloadState, WorkloadUsage, list_workloads, measure_workloads
from workspaces.errors import GuestUnreachable as GuestUnreachableError
from workspaces.models import Activity, Workspace
from workspaces.states import Status
from workspaces.workloads import MAX_WORKLOADS

pytestmark = pytest.mark.django_db(transaction=True)
BOX = "/workspace/the-box/workloads"
WEB = {"name": "web", "cmd": ["serve", "80"], "env": ["TOKEN=secret-word"]}
BOOTED = {"name": "booted", "cmd": ["sleep", "9"], "restart_policy": "never", "log_path": "/root/log"}


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """A running workspace that started with one workload."""
    return make(api, vmhost, Status.RUNNING, slug="the-box", config={"workloads": [BOOTED]})


def ok(answer: Any, status: int = 200) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    body: dict[str, Any] = answer.json()
    assert body["success"] is True
    return body


def refused(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.content
    body: dict[str, Any] = answer.json()
    return body


def in_guest(made: str) -> dict[str, WorkloadState]:
    found = guest_pool().call(GuestAddress(made, "", 1, ""), list_workloads)
    return {each.name: each for each in found}


def test_what_is_saved_is_listed_with_what_the_guest_says(api: Caller, made: str) -> None:
    (shown,) = ok(api.get(BOX))["workloads"]
    started = shown.pop("started_at")
    assert started.endswith("Z")
    assert shown == {
        "id": "booted", "name": "booted", "cmd": ["sleep", "9"], "env": [], "working_dir": None, "user": None,
        "restart_policy": "never", "max_restarts": 0, "restart_delay": 1, "enabled": True, "log_path": "/root/log",
        "saved": True, "status": "running", "pid": 100, "exit_code": None, "restarts": 0,
    }  # fmt: skip
    for path in ("booted", "booted/status"):
        assert ok(api.get(f"{BOX}/{path}"))["workload"] == {**shown, "started_at": started}


def test_a_workload_is_added_changed_and_removed_hot(api: Caller, made: str) -> None:
    body = ok(api.post(BOX, WEB), 201)
    assert (body["applied"], body["problem"], body["workload"]["status"]) == (True, None, "running")
    assert b"secret-word" not in api.get(BOX).content
    assert set(in_guest(made)) == {"booted", "web"}
    changed = ok(api.send("PATCH", f"{BOX}/web", {"cmd": ["other"], "env": None, "user": "dev"}))
    shown = changed["workload"]
    assert (shown["cmd"], shown["env"], shown["user"]) == (["other"], [], "dev")
    row = Workspace.objects.get()
    assert [item["name"] for item in row.workloads] == ["booted", "web"]
    assert row.workloads[1] == {
        "name": "web", "cmd": ["other"], "user": "dev", "restart_policy": "always", "max_restarts": 0,
        "restart_delay": 1, "enabled": True,
    }  # fmt: skip
    gone = ok(api.delete(f"{BOX}/web"))
    assert (gone["applied"], gone["workload"]["name"], gone["workload"]["status"]) == (True, "web", "stopped")
    assert set(in_guest(made)) == {"booted"}
    assert Workspace.objects.get().stale_workloads == []
    events = list(
        Activity.objects.filter(action__startswith="workload").order_by("id").values_list("action", flat=True)
    )
    assert events == ["workload_added", "workload_changed", "workload_removed"]
    refused(api.delete(f"{BOX}/web"), 404, "workload_not_found")


def test_a_disabled_workload_ends_and_is_not_started(api: Caller, made: str) -> None:
    assert ok(api.send("PATCH", f"{BOX}/booted", {"enabled": False}))["workload"]["status"] == "stopped"
    assert in_guest(made) == {}
    refused(api.post(f"{BOX}/booted/start"), 409, "workload_disabled")
    assert ok(api.send("PATCH", f"{BOX}/booted", {"enabled": True}))["workload"]["status"] == "running"


def test_a_workload_is_stopped_and_started(api: Caller, made: str) -> None:
    for _ in range(2):
        stopped = ok(api.post(f"{BOX}/booted/stop"))["workload"]
        assert (stopped["status"], stopped["pid"], stopped["exit_code"]) == ("stopped", None, 143)
    assert Workspace.objects.get().workloads[0]["enabled"] is True
    assert ok(api.post(f"{BOX}/booted/start"))["workload"]["status"] == "running"
    for what in ("start", "stop"):
        refused(api.post(f"{BOX}/other/{what}"), 404, "workload_not_found")


def test_one_that_was_saved_for_the_next_start_is_started_now(api: Caller, made: str) -> None:
    ok(api.put("/workspace/the-box", {"config": {"workloads": [BOOTED, WEB]}}))
    assert ok(api.get(f"{BOX}/web"))["workload"]["status"] == "stopped"
    assert ok(api.post(f"{BOX}/web/start"))["workload"]["status"] == "running"


def test_one_that_only_the_guest_has_is_shown_and_can_be_removed(api: Caller, made: str) -> None:
    ok(api.put("/workspace/the-box", {"config": {"workloads": []}}))
    (shown,) = ok(api.get(BOX))["workloads"]
    assert (shown["name"], shown["saved"], shown["cmd"], shown["status"]) == ("booted", False, None, "running")
    refused(api.send("PATCH", f"{BOX}/booted", {"max_restarts": 1}), 404, "workload_not_found")
    ok(api.delete(f"{BOX}/booted"))
    assert in_guest(made) == {}


@pytest.mark.parametrize("status", [Status.STOPPED, Status.PAUSED, Status.SLEEPING])
def test_what_changes_while_it_does_not_run_applies_when_it_does(api: Caller, vmhost: FakeHost, status: Status) -> None:
    made = make(api, vmhost, status, slug="the-box", config={"workloads": [BOOTED]})
    body = ok(api.post(BOX, WEB), 201)
    assert (body["applied"], body["workload"]["status"]) == (False, "stopped")
    assert status.value in body["problem"]
    assert ok(api.delete(f"{BOX}/booted"))["applied"] is False
    assert Workspace.objects.get().stale_workloads == ["booted", "web"]
    refused(api.post(f"{BOX}/web/start"), 409, "vm_not_running")
    action = {Status.STOPPED: "start", Status.PAUSED: "resume", Status.SLEEPING: "start"}[status]
    ok(api.post(f"/workspace/{made}/{action}"))
    vmhost.settle()
    assert set(in_guest(made)) == {"web"}
    assert Workspace.objects.get().stale_workloads == []


def test_a_guest_that_does_not_answer_gets_the_change_later(api: Caller, made: str) -> None:
    with patch.object(GuestPool, "call", side_effect=GuestUnreachable("It does not answer.")):
        body = ok(api.post(BOX, WEB), 201)
        refused(api.get(BOX), 503, "VM_UNAVAILABLE")
    assert (body["applied"], "does not answer" in body["problem"]) == (False, True)
    assert Workspace.objects.get().stale_workloads == ["web"]
    assert ok(api.send("PATCH", f"{BOX}/web", {}))["applied"] is True
    assert set(in_guest(made)) == {"booted", "web"}


def test_a_change_that_was_made_is_no_error_of_a_guest_that_went_away(api: Caller, made: str) -> None:
    with patch("workspaces.workload_changes.selectors.guest_states", side_effect=GuestUnreachableError):
        body = ok(api.post(BOX, WEB), 201)
    assert (body["applied"], body["workload"]["pid"]) == (True, None)
    assert set(in_guest(made)) == {"booted", "web"}


def test_workloads_of_many_requests_at_once_are_all_there(api: Caller, made: str) -> None:
    def add(number: int) -> int:
        try:
            return api.post(BOX, {"name": f"w{number}", "cmd": ["x"]}).status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(add, range(6))) == {201}
    names = {"booted", *(f"w{number}" for number in range(6))}
    assert {item["name"] for item in Workspace.objects.get().workloads} == set(in_guest(made)) == names


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "web"}, "cmd"),
        ({"name": "../x", "cmd": ["x"]}, "name"),
        ({"name": "cmd", "cmd": ["x"]}, "non_field_errors"),
        ({"name": "web", "cmd": []}, "cmd"),
        ({"name": "web", "cmd": ["x"], "restart_policy": "often"}, "restart_policy"),
        ({"name": "web", "cmd": ["x"], "log_path": "log"}, "log_path"),
        ({"name": "web", "cmd": ["x"], "max_restarts": -1}, "max_restarts"),
    ],
)
def test_what_is_no_workload_is_refused_by_field(api: Caller, made: str, body: dict[str, Any], field: str) -> None:
    assert field in refused(api.post(BOX, body), 400, "validation_error")["details"]
    assert set(in_guest(made)) == {"booted"}


def test_a_change_that_makes_no_workload_changes_nothing(api: Caller, made: str) -> None:
    before = Workspace.objects.get().workloads
    for body in ({"name": "other"}, {"cmd": None}, {"env": ["=x"]}, {"log_path": "x"}):
        refused(api.send("PATCH", f"{BOX}/booted", body), 400, "validation_error")
    refused(api.post(BOX, BOOTED), 409, "workload_exists")
    large = {"name": "large", "cmd": ["x"], "env": ["A=" + "x" * 100_000]}
    assert api.post(BOX, large).status_code == 400
    assert Workspace.objects.get().workloads == before


def test_there_is_a_limit(api: Caller) -> None:
    workloads = [{"name": f"w{number}", "cmd": ["x"]} for number in range(MAX_WORKLOADS)]
    make_workspace(api.account, status=Status.STOPPED, slug="the-box", workloads=workloads)
    assert refused(api.post(BOX, WEB), 409, "workload_limit_exceeded")["details"] == {"current": 32, "max": 32}


def test_logs_are_those_of_a_saved_workload(api: Caller, made: str) -> None:
    refused(api.get(f"{BOX}/other/logs"), 404, "workload_not_found")
    # The main program's log is not one of a workload.
    refused(api.get(f"{BOX}/cmd/logs"), 404, "workload_not_found")
    refused(api.get(f"{BOX}/booted/logs?tail_lines=0"), 400, "validation_error")


def test_nothing_is_changed_of_one_that_is_gone(api: Caller) -> None:
    make_workspace(api.account, status=Status.DESTROYED, slug="the-box")
    refused(api.post(BOX, WEB), 409, "vm_missing")


def test_a_guest_whose_kit_is_older_than_workload_changes_has_them_after_its_restart(api: Caller, made: str) -> None:
    with patch.object(GuestPool, "call", side_effect=GuestKitOutdated("It is older.")):
        for answer in (api.get(BOX), api.get(f"{BOX}/booted"), api.post(f"{BOX}/booted/stop")):
            assert "restart it" in refused(answer, 409, "guest_kit_outdated")["message"]
        added = ok(api.post(BOX, WEB), 201)
        assert (added["applied"], "restart it" in added["problem"]) == (False, True)
        gone = ok(api.delete(f"{BOX}/booted"))
        assert (gone["applied"], gone["workload"]["name"]) == (False, "booted")
        refused(api.delete(f"{BOX}/other"), 409, "guest_kit_outdated")
    assert [item["name"] for item in Workspace.objects.get().workloads] == ["web"]
    assert set(Workspace.objects.get().stale_workloads) == {"booted", "web"}


def test_put_is_as_patch(api: Caller, made: str) -> None:
    body = ok(api.send("PUT", f"{BOX}/booted", {"cmd": ["sleep", "1"]}))
    assert (body["workload"]["cmd"], body["workload"]["log_path"], body["applied"]) == (
        ["sleep", "1"],
        "/root/log",
        True,
    )
    refused(api.send("PUT", f"{BOX}/none", {"cmd": ["sleep", "1"]}), 404, "workload_not_found")
    refused(api.send("PUT", f"{BOX}/booted", {"cmd": "sleep 1"}), 400, "validation_error")


def test_one_that_is_removed_says_so(api: Caller, made: str) -> None:
    assert "booted" in ok(api.delete(f"{BOX}/booted"))["message"]


def test_all_are_removed_at_once(api: Caller, made: str) -> None:
    ok(api.post(BOX, WEB), 201)
    body = ok(api.delete(BOX))
    assert (body["removed"], body["applied"], body["problem"]) == (2, True, None)
    assert body["message"]
    assert (in_guest(made), ok(api.get(BOX))["workloads"]) == ({}, [])
    row = Workspace.objects.get()
    assert (row.workloads, row.stale_workloads) == ([], [])
    assert Activity.objects.latest("pk").detail == "All workloads were removed: booted, web."
    count = Activity.objects.count()
    assert ok(api.delete(BOX))["removed"] == 0
    assert Activity.objects.count() == count


def test_what_cannot_end_at_once_ends_later(api: Caller, vmhost: FakeHost, made: str) -> None:
    with patch.object(GuestPool, "call", side_effect=GuestUnreachable("It does not answer.")):
        body = ok(api.delete(BOX))
    assert (body["removed"], body["applied"]) == (1, False)
    assert "It does not answer" in body["problem"]
    assert set(in_guest(made)) == {"booted"}
    assert Workspace.objects.get().stale_workloads == ["booted"]
    ok(api.post("/workspace/the-box/stop"))
    body = ok(api.delete(BOX))
    assert (body["removed"], body["applied"]) == (0, True)
    ok(api.post("/workspace/the-box/start"))
    assert in_guest(made) == {}


def test_a_stopped_workspace_forgets_all(api: Caller, vmhost: FakeHost, made: str) -> None:
    ok(api.post("/workspace/the-box/stop"))
    body = ok(api.delete(BOX))
    assert (body["removed"], body["applied"]) == (1, False)
    assert "stopped" in body["problem"]
    ok(api.post("/workspace/the-box/start"))
    assert in_guest(made) == {}


NOTHING = {"pid": None, "uptime": 0, "cpu_percent": 0.0, "memory_bytes": 0}


def test_what_a_workload_takes_is_measured(api: Caller, made: str) -> None:
    stats = ok(api.get(f"{BOX}/booted/stats"))["stats"]
    # The fake guest's workloads take a quarter of a CPU and a MiB.
    assert (stats["pid"], stats["memory_bytes"]) == (100, 1 << 20)
    assert 20 < stats["cpu_percent"] < 30
    assert stats["uptime"] >= 0
    ok(api.post(f"{BOX}/booted/stop"))
    assert ok(api.get(f"{BOX}/booted/stats"))["stats"] == NOTHING
    refused(api.get(f"{BOX}/none/stats"), 404, "workload_not_found")
    ok(api.post("/workspace/the-box/stop"))
    assert ok(api.get(f"{BOX}/booted/stats"))["stats"] == NOTHING
    refused(api.get(f"{BOX}/none/stats"), 404, "workload_not_found")


@pytest.mark.parametrize(
    ("before", "percent"),
    [
        (None, 5.0),
        (WorkloadUsage("web", 7, 9_000, 0, 0), 50.0),
        (WorkloadUsage("web", 7, 9_000, 900, 0), 0.0),
        (WorkloadUsage("web", 6, 9_000, 0, 0), 5.0),
        (WorkloadUsage("web", 7, 10_000, 500, 0), 0.0),
        (WorkloadUsage("web", 7, 20_000, 500, 0), 5.0),
    ],
)
def test_percent_of_a_cpu_between_two_measurements(before: WorkloadUsage | None, percent: float) -> None:
    assert WorkloadUsage("web", 7, 10_000, 500, 0).cpu_percent(before) == percent


def test_what_a_guest_says_of_its_workloads_is_not_trusted(api: Caller, made: str) -> None:
    lines = b"web 7 1000 500 4096\n../x 7 1 1 1\nweb\nodd -1 1 1 1\nbig 1 " + b"9" * 40 + b" 1 1\n\xff\n"

    async def hostile(session: object, *args: object) -> bytes:
        return lines

    with patch.object(FakeGuestSession, "kit_helper", hostile):
        found = guest_pool().call(GuestAddress(made, "", 1, ""), measure_workloads)
    assert found == {"web": WorkloadUsage("web", 7, 1000, 500, 4096)}


def test_a_kit_of_before_says_that_it_is_outdated(api: Caller, made: str) -> None:
    error = refusal_error("usage: guest workloads list | put NAME | remove NAME | start NAME | stop NAME")
    assert isinstance(error, GuestKitOutdated)
    with patch.object(FakeGuestSession, "kit_helper", side_effect=error):
        refused(api.get(f"{BOX}/booted/stats"), 409, "guest_kit_outdated")
