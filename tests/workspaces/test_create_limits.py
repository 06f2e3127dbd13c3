"""Limits that `POST /workspace` meets: the plan's, the namespace's, the host's (specification, Errors)."""

from __future__ import annotations

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_count_limit_is_reported_with_current_and_max(new_account, vmhost: FakeHost) -> None:
    api = new_account(plan="tiny")
    small = {"config": {"cpus": 0.1, "memory_mb": 128, "disk_size_mb": 64}}
    assert api.post("/workspace", small).status_code == 201
    assert api.post("/workspace", small).status_code == 201
    answer = api.post("/workspace", small)
    assert (answer.status_code, answer.json()["code"]) == (402, "SANDBOX_LIMIT_REACHED")
    assert answer.json()["details"] == {"current": 2, "max": 2}


@pytest.mark.parametrize(
    ("second", "code"),
    [({"memory_mb": 1024}, "POOL_LIMIT_REACHED"), ({"memory_mb": 512}, "RUNNING_POOL_REACHED")],
)
def test_a_full_pool_refuses_with_402(new_account, vmhost: FakeHost, second: dict, code: str) -> None:
    api = new_account(plan="tiny")
    assert api.post("/workspace", {"config": {"cpus": 0.5, "memory_mb": 768}}).status_code == 201
    answer = api.post("/workspace", {"config": {"cpus": 0.5, **second}})
    assert (answer.status_code, answer.json()["code"]) == (402, code)
    assert {"current", "max"} <= set(answer.json()["details"])


def test_namespace_caps_are_409(api: Caller, vmhost: FakeHost) -> None:
    api.account.namespaces.update(resource_limits={"max_workspaces": 1, "max_ram_mb": 600})
    assert api.post("/workspace", {"config": {"memory_mb": 700}}).json()["code"] == "NAMESPACE_LIMIT_REACHED"
    assert api.post("/workspace", {}).status_code == 201
    answer = api.post("/workspace", {})
    assert (answer.status_code, answer.json()["code"]) == (409, "NAMESPACE_LIMIT_REACHED")


def test_a_host_without_memory_or_disk_refuses_before_anything_is_made(api: Caller, vmhost: FakeHost) -> None:
    from vmbackend.models import Host

    Host.objects.update(memory_mb=600)
    answer = api.post("/workspace", {})
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    assert "memory" in answer.json()["message"]
    Host.objects.update(memory_mb=64000, disk_free_mb=100)
    assert "disk" in api.post("/workspace", {}).json()["message"]
    assert not Workspace.objects.exists()


def test_without_a_living_host_it_is_vm_unavailable(api: Caller) -> None:
    answer = api.post("/workspace", {})
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
