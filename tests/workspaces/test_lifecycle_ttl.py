"""TTL and ping over the API (specification, Lifecycle object, Lifecycle and power)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.expiry import expires_in
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import make
from workspaces.host.sweep import sweep_due
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("method", "path", "sent", "field"),
    [
        ("POST", "temporary", {}, "ttl"), ("POST", "temporary", {"ttl": None}, "ttl"),
        ("POST", "temporary", {"ttl": 0}, "ttl"), ("POST", "temporary", {"ttl": -5}, "ttl"),
        ("POST", "temporary", {"ttl": 0.5}, "ttl"), ("POST", "temporary", {"ttl": "0s"}, "ttl"),
        ("POST", "temporary", {"ttl": "soon"}, "ttl"), ("POST", "temporary", {"ttl": True}, "ttl"),
        ("POST", "temporary", {"ttl": "1h", "ttl_action": "explode"}, "ttl_action"),
        ("POST", "temporary", {"ttl": "1h", "remove_on_exit": "yes"}, "remove_on_exit"),
        ("POST", "temporary", {"ttl": "1h", "restart_policy": "no"}, "restart_policy"),
        ("POST", "temporary", {"ttl": "1h", "restart_policy": None}, "restart_policy"),
        ("PUT", "ttl", {}, "ttl"), ("PUT", "ttl", {"ttl": 0}, "ttl"), ("PUT", "ttl", {"ttl": None}, "ttl"),
        ("PUT", "ttl", {"ttl_action": "sleep"}, "ttl_action"),
        ("PUT", "ttl", {"ttl": "1h", "restart_policy": "always"}, "restart_policy"),
    ],
)  # fmt: skip
def test_what_is_wrong_about_a_ttl_is_400_and_named(api: Caller, method: str, path: str, sent: Any, field: str) -> None:
    row = make_workspace(api.account, ttl_seconds=600)
    answer = api.send(method, f"/workspace/{row.pk}/lifecycle/{path}", sent)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert list(answer.json()["details"]) == [field]
    row.refresh_from_db()
    assert (row.ttl_seconds, row.ttl_action) == (600, "stop")


def test_a_ttl_is_changed(api: Caller) -> None:
    row = make_workspace(api.account, ttl_seconds=600, ttl_expires_at=timezone.now() + timedelta(seconds=600))
    path = f"/workspace/{row.pk}/lifecycle/ttl"
    body = api.put(path, {"ttl": "2h"}).json()
    assert (body["ttl"], body["ttl_action"], expires_in(body, 7200)) == ("2h", "stop", True)
    body = api.put(path, {"ttl_action": "pause"}).json()
    assert (body["ttl"], body["ttl_action"], expires_in(body, 7200)) == ("2h", "pause", True)
    body = api.put(path, {"ttl": 60, "ttl_action": "remove"}).json()
    assert (body["ttl"], body["ttl_action"], expires_in(body, 60)) == ("1m", "remove", True)


@pytest.mark.parametrize(("method", "path"), [("PUT", "lifecycle/ttl"), ("POST", "ping")])
def test_a_permanent_workspace_has_no_ttl(api: Caller, method: str, path: str) -> None:
    row = make_workspace(api.account, mode="permanent")
    answer = api.send(method, f"/workspace/{row.pk}/{path}", {"ttl": "1h"})
    assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")
    assert answer.json()["details"] == {"status": "running", "mode": "permanent"}


def test_a_ping_renews_the_ttl(api: Caller) -> None:
    row = make_workspace(api.account, ttl_seconds=600, ttl_expires_at=timezone.now())
    path = f"/workspace/{row.pk}/ping"
    body = api.post(path).json()
    assert set(body) == {"success", "ttl_expires_at"}
    assert expires_in(body, 600)
    assert expires_in(api.post(path, {"ttl_seconds": 30}).json(), 30)
    assert expires_in(api.get(f"/workspace/{row.pk}/lifecycle").json(), 30)
    assert api.get(f"/workspace/{row.pk}/lifecycle").json()["ttl"] == "10m"  # this once
    assert expires_in(api.post(path, {"ttl_seconds": None}).json(), 600)


@pytest.mark.parametrize("seconds", [0, -1, 1.5, "60", True, [], 10**12])
def test_a_wrong_ping_is_400(api: Caller, seconds: Any) -> None:
    row = make_workspace(api.account, ttl_seconds=600)
    answer = api.post(f"/workspace/{row.pk}/ping", {"ttl_seconds": seconds})
    assert (answer.status_code, list(answer.json()["details"])) == (400, ["ttl_seconds"])


def test_a_temporary_workspace_without_a_ttl_has_nothing_to_renew(api: Caller) -> None:
    row = make_workspace(api.account)
    answer = api.post(f"/workspace/{row.pk}/ping")
    assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("action", "after"), [("stop", "stopped"), ("pause", "paused"), ("remove", None)])
def test_a_ttl_that_is_over_does_what_it_says(api: Caller, vmhost: FakeHost, action: str, after: str | None) -> None:
    made = make(api, vmhost, Status.RUNNING, config={"ttl": "1h"})
    assert api.put(f"/workspace/{made}/lifecycle/ttl", {"ttl_action": action}).status_code == 200
    Workspace.objects.update(ttl_expires_at=timezone.now())
    sweep_due()
    vmhost.settle()
    answer = api.get(f"/workspace/{made}/lifecycle")
    if after is None:
        assert answer.status_code == 404
    else:
        assert (answer.json()["status"], answer.json()["ttl_expires_at"]) == (after, None)
        shown = api.post(f"/workspace/{made}/start").json()["workspace"]
        assert shown["info"]["status"] == "running"
        assert expires_in(api.get(f"/workspace/{made}/lifecycle").json(), 3600)
