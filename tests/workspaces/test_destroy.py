"""Destroy: the machine goes, the record stays (specification, Lifecycle and power)."""

from __future__ import annotations

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.workspace_states import make, status_of
from vmbackend.errors import BackendUnavailable
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def test_destroy_removes_the_machine_and_keeps_the_record(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING, config={"ttl": "1h"})
    for _ in range(2):
        answer = api.delete(f"/workspace/{made}/lifecycle")
        assert (answer.status_code, set(answer.json())) == (200, {"success", "message"})
    shown = api.get(f"/workspace/{made}").json()["workspace"]
    assert (shown["info"]["status"], shown["ready"], shown["info"]["is_running"]) == ("destroyed", False, False)
    assert vmhost.driver.inventory().ids() == frozenset()
    assert api.get("/workspace").json()["total"] == 1
    assert api.get("/workspace/quota").json()["pool_usage"]["count"] == 0
    for path in ("start", "reinstall"):
        answer = api.post(f"/workspace/{made}/{path}")
        assert (answer.status_code, answer.json()["code"]) == (409, "vm_missing")
    assert api.post(f"/workspace/{made}/start", {"force": True}).json()["code"] == "vm_missing"
    assert api.delete(f"/workspace/{made}").status_code == 200


def test_a_destroy_that_fails_can_be_repeated(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)
    vmhost.driver.fail_next("delete", BackendUnavailable("The hypervisor is away."), times=3)
    answer = api.delete(f"/workspace/{made}/lifecycle")
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    assert status_of(made) == "stopped"
    assert api.delete(f"/workspace/{made}/lifecycle").status_code == 200
