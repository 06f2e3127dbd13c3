"""Resources and overlay resize (specification, Resources, Filesystem; Errors, Resources update)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.resizing import SIZES, change, machine, resources
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import make, no_free_waiting_place, status_of
from vmbackend.errors import BackendUnavailable, CapacityExceeded
from vmbackend.models import Host
from workspaces.models import Workspace
from workspaces.power import workspace_stop
from workspaces.states import TRANSITIONAL, Status

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("millis", "cpus", "quota"), [(1000, 1, "100%"), (1500, 1.5, "150%"), (100, 0.1, "10%"), (125, 0.125, "12.5%")]
)
def test_the_resources_object(api: Caller, millis: int, cpus: float, quota: str) -> None:
    row = make_workspace(api.account, cpu_millis=millis)
    assert resources(api, row.pk) == {
        "cpus": cpus, "memory_mb": 128, "disk_size_mb": 64, "cpu_config": {"quota": quota}, "status": "running",
    }  # fmt: skip


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_what_is_applied_relaunches_a_running_workspace(api: Caller, vmhost: FakeHost, method: str) -> None:
    made = make(api, vmhost, Status.RUNNING)
    started = api.get(f"/workspace/{made}").json()["workspace"]["start_time"]
    sent = {"cpus": 1.5, "memory_mb": 1024, "disk_size_mb": 2048, "apply": True}
    answer = api.send(method, f"/workspace/{made}/resources", sent)
    assert (answer.status_code, answer.json()) == (
        200,
        {"success": True, "updated": {"cpus": 1.5, "memory_mb": 1024, "disk_size_mb": 2048}, "relaunched": True},
    )
    assert machine(vmhost, made) == (1.5, 1024, 2048)
    shown = resources(api, made)
    assert (shown["cpu_config"]["quota"], shown["status"], "pending" in shown) == ("150%", "running", False)
    shown = api.get(f"/workspace/{made}").json()["workspace"]
    assert (shown["ready"], shown["start_time"] > started) == (True, True)


def test_what_is_saved_waits_for_the_next_start(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)
    answer = change(api, made, cpus=2, disk_size_mb=1024)
    assert answer.json() == {
        "success": True, "updated": {"cpus": 2, "memory_mb": 512, "disk_size_mb": 1024}, "relaunched": False,
    }  # fmt: skip
    assert machine(vmhost, made) == (1, 512, 512)
    shown = resources(api, made)
    assert (shown["cpus"], shown["pending"]) == (2, {"cpus": 2, "disk_size_mb": 1024})
    api.post(f"/workspace/{made}/stop")
    assert resources(api, made)["pending"] == {"cpus": 2, "disk_size_mb": 1024}
    api.post(f"/workspace/{made}/start")
    assert "pending" not in resources(api, made)
    assert machine(vmhost, made) == (2, 512, 1024)


def test_a_restart_and_a_reinstall_apply_what_was_saved(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)
    for path, memory in (("restart", 256), ("reinstall", 384)):
        change(api, made, memory_mb=memory)
        assert resources(api, made)["pending"] == {"memory_mb": memory}
        assert api.post(f"/workspace/{made}/{path}").status_code == 200
        assert "pending" not in resources(api, made)
        assert machine(vmhost, made)[1] == memory


def test_a_saved_change_may_be_taken_back(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)
    change(api, made, disk_size_mb=4096)
    assert change(api, made, disk_size_mb=512).status_code == 200
    assert "pending" not in resources(api, made)


@pytest.mark.parametrize("status", [Status.STOPPED, Status.PAUSED, Status.SLEEPING, Status.LOST, Status.FAILED])
def test_apply_on_one_that_does_not_run_saves_only(api: Caller, vmhost: FakeHost, status: Status) -> None:
    made = make(api, vmhost, status)
    answer = change(api, made, memory_mb=1024, apply=True)
    assert (answer.status_code, answer.json()["relaunched"]) == (200, False)
    assert status_of(made) == status
    assert resources(api, made)["pending"] == {"memory_mb": 1024}


@pytest.mark.parametrize(
    ("sent", "code", "fields"),
    [
        ({}, "no_resources", None),
        ({"apply": True}, "no_resources", None),
        ({"unknown": 1}, "no_resources", None),
        ({"cpus": 0.09}, "invalid_resources", ["cpus"]),
        ({"cpus": 12.1}, "invalid_resources", ["cpus"]),
        ({"cpus": "2"}, "invalid_resources", ["cpus"]),
        ({"cpus": None}, "invalid_resources", ["cpus"]),
        ({"cpus": True}, "invalid_resources", ["cpus"]),
        ({"memory_mb": 127}, "invalid_resources", ["memory_mb"]),
        ({"memory_mb": 65537}, "invalid_resources", ["memory_mb"]),
        ({"memory_mb": 512.5}, "invalid_resources", ["memory_mb"]),
        ({"memory_mb": []}, "invalid_resources", ["memory_mb"]),
        ({"disk_size_mb": 63}, "invalid_resources", ["disk_size_mb"]),
        ({"disk_size_mb": 1048577}, "invalid_resources", ["disk_size_mb"]),
        ({"disk_size_mb": -1}, "invalid_resources", ["disk_size_mb"]),
        ({"disk_size_mb": 511}, "invalid_resources", ["disk_size_mb"]),  # it would shrink
        ({"cpus": 2, "apply": "yes"}, "invalid_resources", ["apply"]),
        ({"cpus": 2, "memory_mb": "x"}, "invalid_resources", ["memory_mb"]),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_what_is_not_valid_is_400(api: Caller, method: str, sent: Any, code: str, fields: list[str] | None) -> None:
    row = make_workspace(api.account, cpu_millis=1000, memory_mb=512, disk_size_mb=512)
    answer = api.send(method, f"/workspace/{row.pk}/resources", sent)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    if fields:
        assert list(answer.json()["details"]) == fields
    assert resources(api, row.pk) | SIZES == resources(api, row.pk)


def test_a_destroyed_workspace_has_nothing_to_change(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.DESTROYED)
    for path, sent in (("resources", {"cpus": 2}), ("overlay/resize", {"size_mb": 1024})):
        answer = api.put(f"/workspace/{made}/{path}", sent)
        assert (answer.status_code, answer.json()["code"]) == (409, "vm_missing")


@pytest.mark.parametrize("status", sorted(TRANSITIONAL - {Status.DELETING}))
def test_nothing_is_applied_while_something_goes_on(api: Caller, vmhost: FakeHost, status: Status) -> None:
    made = make(api, vmhost, Status.RUNNING)
    Workspace.objects.update(status=status, ready=False)
    for path, sent in (("resources", {"cpus": 2, "apply": True}), ("overlay/resize", {"size_mb": 1024})):
        answer = api.put(f"/workspace/{made}/{path}", sent)
        assert (answer.status_code, answer.json()["code"]) == (409, "operation_in_progress")
    assert resources(api, made) | SIZES == resources(api, made)


def test_saving_is_possible_while_something_goes_on(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)
    vmhost.hold_tasks()
    workspace_stop(workspace=Workspace.objects.get(), actor="test")
    assert change(api, made, memory_mb=768).status_code == 200
    vmhost.release_tasks()
    vmhost.settle()
    assert resources(api, made)["pending"] == {"memory_mb": 768}


FAILURES = [
    ("shutdown", BackendUnavailable("The hypervisor is away."), 3, "running"),
    ("prepare", CapacityExceeded("The host is full."), 1, "running"),
    ("start", CapacityExceeded("The host has no memory."), 1, "stopped"),
]


@pytest.mark.parametrize(("method", "error", "times", "after"), FAILURES, ids=[row[0] for row in FAILURES])
def test_a_resize_that_fails_says_why(
    api: Caller, vmhost: FakeHost, method: str, error: Any, times: int, after: str
) -> None:
    made = make(api, vmhost, Status.RUNNING)
    vmhost.driver.fail_next(method, error, times=times)
    answer = change(api, made, memory_mb=1024, apply=True)
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    assert answer.json()["details"]["reason"] == error.code
    assert error.message in answer.json()["message"]
    assert status_of(made) == after
    if after == "running":
        assert resources(api, made)["memory_mb"] == machine(vmhost, made)[1] == 512
    api.post(f"/workspace/{made}/start")
    assert status_of(made) == "running"
    assert "pending" not in resources(api, made)


@pytest.fixture
def small_host(vmhost: FakeHost) -> Iterator[None]:
    """2 GiB of disk; the fake's size outlives a test."""
    before = vmhost.driver.capacity()
    vmhost.driver.set_capacity(replace(before, disk_mb=2048))
    yield
    vmhost.driver.set_capacity(before)


def test_a_host_without_room_refuses_before_the_machine_is_touched(
    api: Caller, vmhost: FakeHost, small_host: None
) -> None:
    made = make(api, vmhost, Status.RUNNING)
    started = api.get(f"/workspace/{made}").json()["workspace"]["start_time"]
    answer = change(api, made, disk_size_mb=4096, apply=True)
    assert (answer.status_code, answer.json()["details"]) == (503, {"reason": "no_room", "resource": "disk_size_mb"})
    assert api.get(f"/workspace/{made}").json()["workspace"]["start_time"] == started
    assert resources(api, made)["disk_size_mb"] == 512


@pytest.mark.parametrize(
    ("path", "sent"), [("resources", {"cpus": 2, "apply": True}), ("overlay/resize", {"size_mb": 1024})]
)
def test_a_silent_host_is_vm_unavailable(api: Caller, vmhost: FakeHost, path: str, sent: Any) -> None:
    made = make(api, vmhost, Status.RUNNING)
    Host.objects.update(problem="The hypervisor does not answer.")
    answer = api.put(f"/workspace/{made}/{path}", sent)
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    assert resources(api, made) | SIZES == resources(api, made)
    assert status_of(made) == "running"


def test_a_relaunch_that_goes_on_is_202(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)
    vmhost.hold_tasks()
    with no_free_waiting_place():
        answer = change(api, made, memory_mb=1024, apply=True)
    assert (answer.status_code, answer.json()["accepted"], answer.json()["relaunched"]) == (202, True, False)
    assert resources(api, made)["status"] == "resizing"
    vmhost.release_tasks()
    vmhost.settle()
    assert machine(vmhost, made)[1] == 1024
