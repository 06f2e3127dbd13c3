"""Holders of tokens of a machine whose host cannot be reached, and what a host that was given up meters."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.callers import Caller
from tests.workspaces.away.conftest import CutOff
from tests.workspaces.rows import end_leases, make_host, runtime_token
from vmbackend.models import Host
from vmbackend.samples import Sample
from workspaces.host.metering import writer as writing
from workspaces.host.metering.meter import MeterTarget, UsageDelta
from workspaces.host.metering.writer import UsageWriter
from workspaces.models import Workspace
from workspaces.usage.amounts import Amounts

pytestmark = pytest.mark.django_db(transaction=True)


def assert_away(answer: Any) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE"), answer.content
    assert answer.json()["details"]["host_state"] == "unreachable"
    assert answer.headers["Retry-After"] == "30"


@pytest.mark.parametrize("status", ["running", "sleeping"])
def test_a_runtime_refuses_its_holder_at_once(api: Caller, cut_off: CutOff, made: str, status: str) -> None:
    headers = {"Authorization": f"Bearer {runtime_token(Workspace.objects.get())}"}
    Workspace.objects.update(status=status, ready=status == "running")
    cut_off.leave()
    for path in ("files?path=/", "exec", "files/read?path=/etc/hostname"):
        assert_away(Client().get(f"/r/{path}", headers=headers))
    body = {"cmd": "true"}
    assert_away(Client().post("/r/exec", body, content_type="application/json", headers=headers))
    assert Workspace.objects.get().status == status


def test_a_sandbox_refuses_its_holder_at_once_and_says_where_it_is(api: Caller, cut_off: CutOff) -> None:
    made = api.post("/sandbox", {"name": "The box"}).json()["sandbox"]
    assert (made["host"], made["host_state"]) == (Host.objects.get().name, "active")
    cut_off.leave()
    headers = {"Authorization": f"Bearer {made['token']}"}
    path = f"/s/{made['id']}/files/list"
    assert_away(Client().post(path, {"dirPath": "/"}, content_type="application/json", headers=headers))
    [listed] = api.get("/sandbox").json()["sandboxes"]
    assert listed["host_state"] == api.get(f"/sandbox/{made['id']}").json()["sandbox"]["host_state"] == "unreachable"
    for action in ("start", "restart"):
        assert_away(api.post(f"/sandbox/{made['id']}/{action}"))
    answer = api.post(f"/sandbox/{made['id']}/stop")
    assert (answer.status_code, answer.json()["accepted"]) == (202, True)
    assert api.delete(f"/sandbox/{made['id']}").status_code == 202


def test_a_host_that_was_given_up_counts_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was silent only counts what it measured meanwhile."""
    written: list[int] = []
    monkeypatch.setattr(writing, "write_deltas", lambda deltas, tick: written.append(tick))
    host = make_host()
    target = MeterTarget("ws", "a", "n", 1000, 128, True, 0)
    deltas = {"ws": UsageDelta(target, Sample(1, "r"), Amounts(), Amounts(), 0, 0, [], 0)}
    writer = UsageWriter(host.pk)
    end_leases()
    assert writer._write(1, deltas)
    Host.objects.update(state="gone")
    assert writer._write(2, deltas)
    assert written == [1]
