"""The idle policy over the API (specification, Lifecycle and power)."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from common.redis import redis_client
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_host, make_workspace
from tests.workspaces.workspace_states import make
from vmbackend.driver import MachineState
from vmbackend.models import Host
from workspaces import last_used
from workspaces.host.sweep import sweep_due
from workspaces.models import Activity, Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db

OFF = {"suspend_after": 0, "stop_after": 0, "enabled": False}


@pytest.mark.parametrize(
    ("sent", "policy"),
    [
        ({"suspend_after": "2m"}, {"suspend_after": 120, "stop_after": 0, "enabled": True}),
        ({"suspend_after": 120, "stop_after": 3600}, {"suspend_after": 120, "stop_after": 3600, "enabled": True}),
        (
            {"suspend_after": "1h30m", "stop_after": "2d"},
            {"suspend_after": 5400, "stop_after": 172800, "enabled": True},
        ),
        ({"suspend_after": 0}, OFF),
        ({"suspend_after": "0", "stop_after": 0}, OFF),
        ({"stop_after": 3600}, {"suspend_after": 0, "stop_after": 3600, "enabled": False}),
    ],
)
def test_the_idle_policy_is_normalized(api: Caller, sent: Any, policy: Any) -> None:
    row = make_workspace(api.account, mode="permanent", host=make_host())
    answer = api.put(f"/workspace/{row.pk}/lifecycle/idle", sent)
    assert (answer.status_code, answer.json()) == (200, {"success": True, "idle": policy, **policy})
    assert api.get(f"/workspace/{row.pk}/lifecycle").json()["idle"] == policy
    row.refresh_from_db()
    assert (row.idle_due_at is not None) is policy["enabled"]
    assert Activity.objects.get(workspace_id=row.pk).action == "idle_changed"


def test_half_of_the_policy_leaves_the_other(api: Caller) -> None:
    row = make_workspace(api.account, mode="permanent", suspend_after=600, stop_after=7200)
    path = f"/workspace/{row.pk}/lifecycle/idle"
    assert api.put(path, {"stop_after": 0}).json()["idle"] == {"suspend_after": 600, "stop_after": 0, "enabled": True}
    assert api.put(path, {"suspend_after": "5m"}).json()["idle"]["suspend_after"] == 300


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({}, "suspend_after"), ({"suspend_after": 119}, "suspend_after"), ({"suspend_after": "1m"}, "suspend_after"),
        ({"suspend_after": 0.5}, "suspend_after"), ({"suspend_after": -1}, "suspend_after"),
        ({"suspend_after": "soon"}, "suspend_after"), ({"suspend_after": None}, "suspend_after"),
        ({"suspend_after": True}, "suspend_after"), ({"suspend_after": ["2m"]}, "suspend_after"),
        ({"suspend_after": "99999d"}, "suspend_after"),
        ({"suspend_after": "2m", "stop_after": 3599}, "stop_after"), ({"stop_after": "59m"}, "stop_after"),
        ({"stop_after": -1}, "stop_after"), ({"stop_after": False}, "stop_after"),
    ],
)  # fmt: skip
def test_an_idle_policy_out_of_range_is_400(api: Caller, sent: Any, field: str) -> None:
    row = make_workspace(api.account, mode="permanent", suspend_after=600)
    answer = api.put(f"/workspace/{row.pk}/lifecycle/idle", sent)
    assert (answer.status_code, answer.json()["code"], list(answer.json()["details"])) == (
        400, "validation_error", [field],
    )  # fmt: skip
    row.refresh_from_db()
    assert row.suspend_after == 600


def test_a_temporary_workspace_has_no_idle_policy(api: Caller) -> None:
    row = make_workspace(api.account)
    path = f"/workspace/{row.pk}/lifecycle/idle"
    answer = api.put(path, {"suspend_after": "10m"})
    assert (answer.status_code, answer.json()["code"]) == (409, "idle_not_supported")
    assert api.put(path, {"suspend_after": 0}).status_code == 200
    assert Workspace.objects.get().suspend_after == 0


@pytest.mark.django_db(transaction=True)
def test_an_idle_workspace_sleeps_and_wakes(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING, mode="permanent")
    api.put(f"/workspace/{made}/lifecycle/idle", {"suspend_after": 120, "stop_after": 3600})
    Workspace.objects.update(idle_due_at=timezone.now())
    redis_client().delete(last_used._key(made))
    sweep_due()
    vmhost.settle()
    body = api.get(f"/workspace/{made}/lifecycle").json()
    assert (body["status"], body["uptime"]) == ("sleeping", 0)
    assert vmhost.driver.state(made) is MachineState.ASLEEP
    assert api.post(f"/workspace/{made}/resume").json()["workspace"]["info"]["status"] == "running"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mode", ["permanent", "temporary"])
def test_a_workspace_is_put_to_sleep_at_once_and_wakes(api: Caller, vmhost: FakeHost, mode: str) -> None:
    made = make(api, vmhost, Status.RUNNING, mode=mode)
    answer = api.post(f"/workspace/{made}/sleep")
    assert (answer.status_code, answer.json()["workspace"]["status"]) == (200, "sleeping")
    assert vmhost.driver.state(made) is MachineState.ASLEEP
    assert Workspace.objects.get().suspend_after == 0
    again = api.post(f"/workspace/{made}/sleep")
    assert (again.status_code, again.json()["code"]) == (409, "invalid_state")
    assert api.post(f"/workspace/{made}/resume").json()["workspace"]["info"]["status"] == "running"


@pytest.mark.django_db(transaction=True)
def test_a_host_that_saves_no_memory_refuses_a_sleep(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)
    Host.objects.update(snapshots=False)
    answer = api.post(f"/workspace/{made}/sleep")
    assert (answer.status_code, answer.json()["code"]) == (409, "idle_not_supported")
    assert vmhost.driver.state(made) is MachineState.RUNNING
