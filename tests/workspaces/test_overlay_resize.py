"""The disk alone: `PUT /workspace/:id/overlay/resize` (specification, Filesystem)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.resizing import change, machine, resources
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import make, status_of
from workspaces.models import Operation
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(("status", "was_running"), [(Status.RUNNING, True), (Status.STOPPED, False)])
def test_the_overlay_grows(api: Caller, vmhost: FakeHost, status: Status, was_running: bool) -> None:
    made = make(api, vmhost, Status.RUNNING)
    api.post(f"/workspace/{made}/exec", {"cmd": "echo kept > note"})
    if status is Status.STOPPED:
        api.post(f"/workspace/{made}/stop")
    answer = api.put(f"/workspace/{made}/overlay/resize", {"size_mb": 1024})
    assert (answer.status_code, answer.json()) == (
        200, {"success": True, "size_mb": 1024, "wasRunning": was_running, "relaunched": was_running},
    )  # fmt: skip
    assert (status_of(made), machine(vmhost, made)[2]) == (status, 1024)
    assert resources(api, made)["disk_size_mb"] == 1024
    api.post(f"/workspace/{made}/start")
    assert api.post(f"/workspace/{made}/exec", {"cmd": "cat note"}).json()["stdout"] == "kept\n"


def test_an_overlay_resize_leaves_what_else_was_saved(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)
    change(api, made, cpus=2, disk_size_mb=600)
    assert api.put(f"/workspace/{made}/overlay/resize", {"size_mb": 700}).status_code == 200
    assert machine(vmhost, made) == (1, 512, 700)
    assert resources(api, made)["pending"] == {"cpus": 2}


@pytest.mark.parametrize(("status", "running"), [(Status.RUNNING, True), (Status.STOPPED, False)])
def test_the_size_it_has_changes_nothing(api: Caller, vmhost: FakeHost, status: Status, running: bool) -> None:
    made = make(api, vmhost, status)
    count = Operation.objects.count()
    answer = api.put(f"/workspace/{made}/overlay/resize", {"size_mb": 512})
    assert answer.json() == {"success": True, "size_mb": 512, "wasRunning": running, "relaunched": False}
    assert Operation.objects.count() == count


@pytest.mark.parametrize(
    ("size", "status", "code"),
    [
        (0, 400, "validation_error"), (-1, 400, "validation_error"), ("1024", 400, "validation_error"),
        (None, 400, "validation_error"), (True, 400, "validation_error"), (700.5, 400, "validation_error"),
        (1_048_577, 400, "validation_error"), (511, 400, "invalid_resources"), (1, 400, "invalid_resources"),
        (102_401, 403, "RESOURCE_NOT_ALLOWED"),
    ],
)  # fmt: skip
def test_a_wrong_overlay_size_is_refused(api: Caller, vmhost: FakeHost, size: Any, status: int, code: str) -> None:
    made = make(api, vmhost, Status.RUNNING)
    answer = api.put(f"/workspace/{made}/overlay/resize", {"size_mb": size})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    if status == 400:
        assert list(answer.json()["details"]) == ["size_mb"]
    assert (status_of(made), machine(vmhost, made)[2]) == ("running", 512)


def test_a_missing_overlay_size_is_named(api: Caller) -> None:
    row = make_workspace(api.account)
    answer = api.put(f"/workspace/{row.pk}/overlay/resize", {})
    assert (answer.status_code, list(answer.json()["details"])) == (400, ["size_mb"])


@pytest.mark.parametrize("status", [Status.PAUSED, Status.SLEEPING, Status.LOST, Status.FAILED])
def test_an_overlay_is_resized_only_where_it_runs_or_is_stopped(api: Caller, vmhost: FakeHost, status: Status) -> None:
    made = make(api, vmhost, status)
    answer = api.put(f"/workspace/{made}/overlay/resize", {"size_mb": 1024})
    assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")
    assert answer.json()["details"]["status"] == status


def test_the_running_pool_holds_for_a_growing_disk(new_account: Callable[..., Caller], vmhost: FakeHost) -> None:
    api = new_account(plan="tiny")  # 2048 MiB of disk may run, 4096 may be owned
    small = {"cpus": 0.2, "memory_mb": 128, "disk_size_mb": 1024}
    first = make(api, vmhost, Status.RUNNING, config=small)
    make(api, vmhost, Status.RUNNING, config=small)
    answer = api.put(f"/workspace/{first}/overlay/resize", {"size_mb": 1500})
    assert (answer.status_code, answer.json()["code"]) == (402, "RUNNING_POOL_REACHED")
    api.post(f"/workspace/{first}/stop")
    assert api.put(f"/workspace/{first}/overlay/resize", {"size_mb": 1500}).status_code == 200
