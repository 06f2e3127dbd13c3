"""Reinstall: what it erases and keeps, and its four errors (specification, Lifecycle and power; Errors, Reinstall)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.workspace_states import make, status_of
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable, CapacityExceeded
from workspaces.models import Activity, Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
AWAY, FULL = BackendUnavailable("The hypervisor is away."), CapacityExceeded("The host is full.")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK4MFt2ycVx9YX+gzAd1DaI0QjCpl95MCppG4xK/2tZn me@box"


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """A running workspace with a file in it and SSH switched on."""
    made = make(api, vmhost, Status.RUNNING, slug="the-box", mode="permanent", config={"ssh_access": True})
    run(api, "echo kept > note")
    return made


def run(api: Caller, command: str) -> str:
    answer = api.post("/workspace/the-box/exec", {"cmd": command})
    assert answer.status_code == 200
    text: str = answer.json()["stdout"]
    return text


def has_note(api: Caller) -> bool:
    return run(api, "test -e note && echo yes || echo no") == "yes\n"


def test_a_reinstall_erases_the_file_system_and_keeps_the_rest(api: Caller, vmhost: FakeHost, made: str) -> None:
    Workspace.objects.update(metadata={"a": 1}, ingress_ports=[80])
    api.post("/workspace/the-box/ssh/key", {"public_key": KEY})
    before = api.get("/workspace/the-box").json()["workspace"]
    answer = api.post("/workspace/the-box/reinstall")
    body = answer.json()
    assert answer.status_code == 200
    assert set(body) == {"success", "workspace_id", "reinstalled", "running", "ip", "message"}
    assert (body["workspace_id"], body["reinstalled"], body["running"], body["ip"]) == (made, True, True, before["ip"])
    after = api.get("/workspace/the-box").json()["workspace"]
    unchanged = ["id", "slug", "name", "image", "ip", "resources", "network", "mode", "namespace", "created_at", "logo"]
    assert {name: after[name] for name in unchanged} == {name: before[name] for name in unchanged}
    assert (after["ready"], after["start_time"] > before["start_time"]) == (True, True)
    assert after["access"] == {"ssh_enabled": False}
    assert api.get("/workspace/the-box/details").json()["ssh"]["ssh_enabled"] is False
    assert Workspace.objects.get().metadata == {"a": 1}
    assert not has_note(api)


def test_it_boots_from_the_stored_settings(api: Caller, vmhost: FakeHost, made: str) -> None:
    api.put("/workspace/the-box", {"config": {"env": ["NEW=yes"]}})
    api.put("/workspace/the-box/resources", {"memory_mb": 768})
    assert api.post("/workspace/the-box/reinstall").status_code == 200
    assert run(api, "echo $NEW") == "yes\n"
    assert vmhost.driver.definition(made)["memory_mb"] == 768


@pytest.mark.parametrize("status", [Status.STOPPED, Status.PAUSED, Status.SLEEPING])
def test_one_that_does_not_run_runs_after_it(api: Caller, vmhost: FakeHost, made: str, status: Status) -> None:
    made = make(api, vmhost, status)
    body = api.post(f"/workspace/{made}/reinstall").json()
    assert (body["reinstalled"], body["running"], status_of(made)) == (True, True, "running")


@pytest.mark.parametrize("status", [Status.DESTROYED, Status.FAILED])
def test_without_a_machine_it_is_vm_missing(api: Caller, vmhost: FakeHost, status: Status) -> None:
    made = make(api, vmhost, status)
    answer = api.post(f"/workspace/{made}/reinstall")
    assert (answer.status_code, answer.json()["code"]) == (409, "vm_missing")
    assert status_of(made) == status


def refused(api: Caller, code: str) -> Any:
    answer = api.post("/workspace/the-box/reinstall")
    assert (answer.status_code, answer.json()["code"], answer.json()["error"]) == (502, code, code)
    shown = api.get("/workspace/the-box").json()["workspace"]
    assert shown["info"]["error"]["code"] == code
    return shown


def test_what_cannot_be_stopped_is_not_reset(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.driver.fail_next("shutdown", AWAY, times=3)
    shown = refused(api, "stop_failed")
    assert (shown["info"]["status"], shown["ready"]) == ("running", True)
    assert shown["access"]["ssh_enabled"] is True
    assert has_note(api)


def test_a_file_system_that_is_not_reset_is_started_again(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.driver.fail_next("reset_disk", FULL)
    shown = refused(api, "overlay_delete_failed")
    assert (shown["info"]["status"], shown["ready"]) == ("running", True)
    assert shown["access"]["ssh_enabled"] is True
    assert has_note(api)


def test_a_stopped_one_whose_file_system_is_not_reset_stays_stopped(api: Caller, vmhost: FakeHost, made: str) -> None:
    api.post("/workspace/the-box/stop")
    vmhost.driver.fail_next("reset_disk", FULL)
    assert refused(api, "overlay_delete_failed")["info"]["status"] == "stopped"
    api.post("/workspace/the-box/start")
    assert has_note(api)


def test_what_is_reset_and_not_started_is_finished_by_start(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.driver.fail_next("start", FULL)
    shown = refused(api, "relaunch_failed")
    assert (shown["info"]["status"], shown["access"]["ssh_enabled"]) == ("stopped", False)
    assert vmhost.driver.state(made) is MachineState.OFF
    shown = api.post("/workspace/the-box/start").json()["workspace"]
    assert (shown["info"]["status"], shown["info"]["error"]) == ("running", None)
    assert not has_note(api)


def test_it_is_recorded_in_the_activity(api: Caller, vmhost: FakeHost, made: str) -> None:
    api.post("/workspace/the-box/reinstall")
    entries = Activity.objects.filter(workspace_id=made, action__in=["erased", "reinstalled"])
    assert {entry.actor for entry in entries} == {"first"}
    assert entries.count() == 2


def test_a_full_running_pool_refuses_the_reinstall_of_a_stopped_one(new_account: Any, vmhost: FakeHost) -> None:
    api = new_account(plan="tiny")
    small = {"cpus": 0.2, "memory_mb": 768, "disk_size_mb": 64}
    first = make(api, vmhost, Status.STOPPED, config=small)
    make(api, vmhost, Status.RUNNING, config=small)
    answer = api.post(f"/workspace/{first}/reinstall")
    assert (answer.status_code, answer.json()["code"]) == (402, "RUNNING_POOL_REACHED")
    assert status_of(first) == "stopped"


def test_a_suspended_namespace_refuses_it(api: Caller, vmhost: FakeHost, made: str) -> None:
    api.account.namespaces.update(status="suspended", suspended_by_hand=True)
    answer = api.post("/workspace/the-box/reinstall")
    assert (answer.status_code, answer.json()["code"]) == (403, "namespace_suspended")
    assert has_note(api)
