"""Limits that a change of resources meets (specification, Limits; Errors, Resources update)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.resizing import SIZES, change, machine, resources
from tests.workspaces.workspace_states import make
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("apply", [True, False])
def test_a_disk_never_shrinks(api: Caller, vmhost: FakeHost, apply: bool) -> None:
    made = make(api, vmhost, Status.RUNNING)
    answer = change(api, made, disk_size_mb=256, apply=apply)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_resources")
    assert machine(vmhost, made)[2] == 512


@pytest.mark.parametrize("apply", [True, False])
def test_less_cpu_and_memory_is_fine(api: Caller, vmhost: FakeHost, apply: bool) -> None:
    made = make(api, vmhost, Status.RUNNING)
    assert change(api, made, cpus=0.5, memory_mb=128, apply=apply).json()["relaunched"] is apply
    assert machine(vmhost, made) == ((0.5, 128, 512) if apply else (1, 512, 512))


@pytest.mark.parametrize("apply", [True, False])
@pytest.mark.parametrize("sent", [{"cpus": 9}, {"memory_mb": 20000}, {"disk_size_mb": 200_000}])
def test_above_the_plan_is_403(api: Caller, vmhost: FakeHost, apply: bool, sent: Any) -> None:
    made = make(api, vmhost, Status.RUNNING)
    answer = change(api, made, **sent, apply=apply)
    assert (answer.status_code, answer.json()["code"]) == (403, "RESOURCE_NOT_ALLOWED")
    assert {"current", "max"} <= set(answer.json()["details"])
    assert "pending" not in resources(api, made)


@pytest.mark.parametrize("apply", [True, False])
@pytest.mark.parametrize(
    ("caps", "sent"),
    [
        ({"max_vcpus": 1}, {"cpus": 2}),
        ({"max_ram_mb": 600}, {"memory_mb": 601}),
        ({"max_disk_gb": 1}, {"disk_size_mb": 1025}),
    ],
)
def test_the_caps_of_the_namespace_hold_for_upgrades(
    api: Caller, vmhost: FakeHost, apply: bool, caps: Any, sent: Any
) -> None:
    made = make(api, vmhost, Status.RUNNING)
    api.account.namespaces.update(resource_limits=caps)
    answer = change(api, made, **sent, apply=apply)
    assert (answer.status_code, answer.json()["code"]) == (409, "NAMESPACE_LIMIT_REACHED")
    assert {"current", "max"} <= set(answer.json()["details"])
    assert resources(api, made) | SIZES == resources(api, made)


def test_less_is_fine_under_a_cap_that_came_later(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)
    api.account.namespaces.update(resource_limits={"max_ram_mb": 256})
    assert change(api, made, memory_mb=384).status_code == 200


@pytest.mark.parametrize("apply", [True, False])
def test_the_owned_pool_holds(new_account: Callable[..., Caller], vmhost: FakeHost, apply: bool) -> None:
    api = new_account(plan="tiny")  # owns 1536 MiB, runs 1024
    small = {"cpus": 0.2, "memory_mb": 256, "disk_size_mb": 64}
    made = make(api, vmhost, Status.RUNNING, config=small)
    make(api, vmhost, Status.STOPPED, config={**small, "memory_mb": 768})
    answer = change(api, made, memory_mb=1024, apply=apply)
    assert (answer.status_code, answer.json()["code"]) == (402, "POOL_LIMIT_REACHED")
    assert answer.json()["details"] == {"resource": "memory_mb", "current": 1024, "requested": 768, "max": 1536}


def test_the_running_pool_holds_for_apply_and_the_next_start(
    new_account: Callable[..., Caller], vmhost: FakeHost
) -> None:
    api = new_account(plan="tiny")
    small = {"cpus": 0.2, "memory_mb": 512, "disk_size_mb": 64}
    first = make(api, vmhost, Status.RUNNING, config=small)
    make(api, vmhost, Status.RUNNING, config=small)
    answer = change(api, first, memory_mb=640, apply=True)
    assert (answer.status_code, answer.json()["code"]) == (402, "RUNNING_POOL_REACHED")
    assert answer.json()["details"] == {"resource": "memory_mb", "current": 1024, "requested": 128, "max": 1024}
    assert "pending" not in resources(api, first)
    assert change(api, first, memory_mb=640).status_code == 200
    answer = api.post(f"/workspace/{first}/restart")
    assert (answer.status_code, answer.json()["code"]) == (402, "RUNNING_POOL_REACHED")
    assert resources(api, first)["pending"] == {"memory_mb": 640}
