"""The runtime's description of itself, through a guest, and waking one."""

from __future__ import annotations

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.runtime.conftest import Holder
from tests.world import assert_error
from workspaces import last_used, power
from workspaces.runtime.information import CAPABILITIES
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_running_machine_is_healthy_and_in_use(holder: Holder) -> None:
    assert holder.get("/health").json() == {"success": True, "status": "ok"}
    assert last_used.is_in_use(holder.id, 60)


def test_the_runtime_is_described(holder: Holder) -> None:
    body = holder.get("/runtime").json()
    assert body == {
        "success": True, "os": "linux", "arch": body["arch"], "cpus": body["cpus"], "home": body["home"],
        "shell": body["shell"], "protocol_version": 1, "capabilities": list(CAPABILITIES),
    }  # fmt: skip
    assert body["cpus"] >= 1
    assert body["home"].startswith("/")
    assert body["shell"].startswith("/")
    assert body["arch"] == "x86_64"


def test_there_is_one_runtime_under_two_names(holder: Holder) -> None:
    described = {key: value for key, value in holder.get("/runtime").json().items() if key != "success"}
    assert holder.get("/runtimes").json() == {
        "success": True, "version": 1, "default_target": "default", "capabilities": list(CAPABILITIES),
        "aliases": {"local": "default"},
        "targets": [
            {
                "id": "default", "local": True, "available": True, "version": 1, "capabilities": list(CAPABILITIES),
                "runtime": described,
            }
        ],
    }  # fmt: skip


def test_a_sleeping_machine_is_woken(holder: Holder, vmhost: FakeHost) -> None:
    power.workspace_sleep(workspace=holder.workspace, actor="test")
    vmhost.settle()
    assert holder.workspace.status == Status.SLEEPING
    assert holder.get("/health").status_code == 200
    assert holder.workspace.status == Status.RUNNING


def test_a_stopped_one_is_not_started(api: Caller, holder: Holder) -> None:
    api.post(f"/workspace/{holder.id}/stop")
    answer = holder.get("/health")
    assert_error(answer, 409, "vm_not_running")
    assert answer.json()["details"] == {"status": "stopped"}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_other_methods_are_refused(holder: Holder, method: str) -> None:
    assert_error(holder.send(method, "/runtime"), 405)
