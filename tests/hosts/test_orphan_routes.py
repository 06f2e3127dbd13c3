"""Kept orphans for programs of staff: who may see, put back and remove them, and which requests are refused."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from staff.models import StaffEntry
from tests.callers import Caller
from tests.hosts.rows import joined_host, staff_token
from tests.workspaces.rows import end_leases, make_host, make_workspace, renew_leases
from vmbackend.models import Host
from workspaces import kept_orphans
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db
WHY = '{"reason": "why"}'


def send(token: str, method: str, path: str, body: str = WHY) -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return Client().generic(method, path, body, content_type="application/json", headers=headers)


@pytest.fixture
def host() -> Host:
    made = joined_host("two")
    renew_leases()
    return made


@pytest.fixture(autouse=True)
def _hosts_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*_: Any) -> bytes:
        raise AssertionError("the host was asked")

    monkeypatch.setattr(kept_orphans, "call_host", called)


def keep(host: Host, *orphans: tuple[str, int]) -> None:
    kept = [
        {"name": f"{key}.{epoch}.5", "machine_id": key, "epoch": epoch, "kept_since": 5.0, "size_bytes": 9}
        for key, epoch in orphans
    ]
    Host.objects.filter(pk=host.pk).update(orphans=kept)


def path_of(host: Host, key: str, act: str = "") -> str:
    return f"/staff/hosts/{host.pk}/orphans/{key}{act}"


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_orphans_are_listed_with_what_the_workspaces_have_now(host: Host, api: Caller) -> None:
    row = make_workspace(api.account, status="lost", epoch=7)
    keep(host, (row.pk, 6), ("ws_gone", 2))
    shown = send(staff_token("hosts.read"), "GET", f"/staff/hosts/{host.pk}/orphans").json()["orphans"]
    common = {"kept_since": 5.0, "size_bytes": 9}
    assert shown == [
        {"workspace_id": row.pk, "epoch": 6, "name": f"{row.pk}.6.5", "workspace_status": "lost", "workspace_epoch": 7}
        | common,
        {"workspace_id": "ws_gone", "epoch": 2, "name": "ws_gone.2.5", "workspace_status": None,
         "workspace_epoch": None} | common,
    ]  # fmt: skip


def test_only_tokens_of_staff_see_or_change_them(host: Host, api: Caller) -> None:
    row = make_workspace(api.account, status="lost")
    keep(host, (row.pk, 1))
    all_routes = [("GET", f"/staff/hosts/{host.pk}/orphans"), ("DELETE", path_of(host, row.pk)),
                  ("POST", path_of(host, row.pk, "/put-back"))]  # fmt: skip
    for method, path in all_routes:
        assert getattr(api, method.lower())(path).status_code == 403, "its owner"
        assert Client().generic(method, path).status_code == 401
        assert send("stf_unknown", method, path).status_code == 401
    reader = staff_token("hosts.read")
    assert [send(reader, *route).status_code for route in all_routes] == [200, 403, 403]
    assert not StaffEntry.objects.exists()


def test_each_act_takes_a_reason(host: Host, api: Caller) -> None:
    row = make_workspace(api.account, status="lost")
    keep(host, (row.pk, 2))
    for body in ("{}", '{"reason": ""}'):
        for method, path in (("DELETE", path_of(host, row.pk)), ("POST", path_of(host, row.pk, "/put-back"))):
            assert code_of(send(staff_token(), method, path, body)) == (400, "validation_error")


def test_what_there_is_not_is_not_found(host: Host, api: Caller) -> None:
    row = make_workspace(api.account, status="lost")
    keep(host, ("ws_gone", 1))
    for key in (row.pk, "ws_gone", "ws_never"):
        assert code_of(send(staff_token(), "POST", path_of(host, key, "/put-back"))) == (404, "not_found")
    for path in ("host_none/orphans", f"host_none/orphans/{row.pk}/put-back"):
        method = "POST" if path.endswith("back") else "GET"
        assert send(staff_token(), method, f"/staff/hosts/{path}").status_code == 404


@pytest.mark.parametrize("change", ["draining", "maintenance", "gone", "silent", "no hypervisor"])
def test_nothing_is_put_back_on_a_host_that_takes_nothing(host: Host, api: Caller, change: str) -> None:
    row = make_workspace(api.account, status="lost")
    keep(host, (row.pk, 2))
    if change == "silent":
        end_leases()
    elif change == "no hypervisor":
        Host.objects.update(problem="libvirt is away")
    else:
        Host.objects.update(state=change)
    assert code_of(send(staff_token(), "POST", path_of(host, row.pk, "/put-back"))) == (409, "invalid_state")
    if change in ("gone", "silent"):
        assert code_of(send(staff_token(), "DELETE", path_of(host, row.pk))) == (503, "VM_UNAVAILABLE")
        assert [entry.outcome for entry in StaffEntry.objects.order_by("pk")] == ["begun", "refused"]


NEWER = [
    ("running", 1, "epoch_conflict"),
    ("paused", 1, "epoch_conflict"),
    ("sleeping", 1, "epoch_conflict"),
    ("stopped", 1, "epoch_conflict"),  # on another host
    ("lost", 3, "epoch_conflict"),
    ("failed", 1, "invalid_state"),
    ("destroyed", 1, "invalid_state"),
    ("starting", 1, "operation_in_progress"),
    ("deleting", 1, "operation_in_progress"),
]


@pytest.mark.parametrize(("status", "epoch", "expected"), NEWER)
def test_what_a_workspace_has_now_is_not_replaced(
    host: Host, api: Caller, status: str, epoch: int, expected: str
) -> None:
    row = make_workspace(api.account, host=make_host("local"), status=status, epoch=epoch)
    keep(host, (row.pk, 2))
    assert code_of(send(staff_token(), "POST", path_of(host, row.pk, "/put-back"))) == (409, expected)
    now = Workspace.objects.get()
    assert (now.status, now.epoch, now.host_id) == (status, epoch, row.host_id)
    assert not StaffEntry.objects.exists()


@pytest.mark.parametrize("said", [{}, [1], [{}], [{"machine_id": "ws_a"}], "epoch", "kept_since"])
def test_what_a_taken_over_host_says_of_its_orphans_fails_nothing(host: Host, api: Caller, said: Any) -> None:
    row = make_workspace(api.account, status="lost")
    keep(host, (row.pk, 2))
    if isinstance(said, str):
        said = [{**Host.objects.get(pk=host.pk).orphans[0], said: 1 << 63}]
    Host.objects.filter(pk=host.pk).update(orphans=said)
    assert send(staff_token(), "GET", f"/staff/hosts/{host.pk}/orphans").json()["orphans"] == []
    assert send(staff_token(), "POST", path_of(host, row.pk, "/put-back")).status_code == 404
