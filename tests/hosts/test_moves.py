"""Moves and drains as staff ask for them: which are refused, what is shown, and who may."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from staff.models import StaffEntry
from tests.callers import Caller
from tests.hosts.rows import joined_host, staff_token
from tests.workspaces.rows import make_workspace, renew_leases
from vmbackend.models import Host
from workspaces.models import Arrival, Drain, Move, Operation, Workspace
from workspaces.models.move import MoveState
from workspaces.models.operation import OperationState
from workspaces.moves.drains import drain_hosts
from workspaces.moves.rows import move_end
from workspaces.placement import HELD_SECONDS
from workspaces.states import Status

pytestmark = pytest.mark.django_db

WHY = {"reason": "The rack is hot"}


@pytest.fixture
def hosts(db: None) -> tuple[Host, Host]:
    """Two hosts with room."""
    made = joined_host("one"), joined_host("two")
    room = {"memory_mb": 65536, "disk_mb": 1 << 20, "disk_free_mb": 1 << 20, "arch": "amd64", "transfer_key": "k"}
    Host.objects.update(**room, last_seen_at=Now())
    renew_leases()
    return made


@pytest.fixture
def workspace(api: Caller, hosts: tuple[Host, Host]) -> Workspace:
    return make_workspace(api.account, host=hosts[0], ip="10.129.240.9", status=Status.STOPPED, started_at=None)


def send(method: str, path: str, body: dict[str, Any] | None = None, *can: str) -> Any:
    headers = {"Authorization": f"Bearer {staff_token(*can)}"}
    return Client().generic(method, path, json.dumps(body or {}), content_type="application/json", headers=headers)


def move(workspace: Workspace, **body: Any) -> Any:
    return send("POST", f"/staff/workspaces/{workspace.pk}/move", {**WHY, **body})


def test_a_move_is_accepted_and_shown(workspace: Workspace, hosts: tuple[Host, Host]) -> None:
    answer = move(workspace, to="two")
    assert answer.status_code == 202, answer.content
    shown = answer.json()["operation"]
    assert (shown["from"], shown["to"], shown["state"], shown["step"]) == ("one", "two", "queued", "reserve")
    assert (shown["bytes_total"], shown["standstill_seconds"], shown["error"]) == (0, None, None)
    workspace.refresh_from_db()
    assert workspace.status == Status.MOVING
    for host in hosts:
        listed = send("GET", f"/staff/hosts/{host.pk}").json()["host"]["moves"]
        assert [each["id"] for each in listed] == [shown["id"]]
    entry = StaffEntry.objects.get(action="workspace.move")
    assert (entry.object_id, entry.reason, entry.user_name) == (workspace.pk, "The rack is hot", "ada")


def _full(two: Host, workspace: Workspace) -> dict[str, Any]:
    Host.objects.filter(pk=two.pk).update(disk_free_mb=1)
    return {"to": "two"}


def _draining(two: Host, workspace: Workspace) -> dict[str, Any]:
    Host.objects.filter(pk=two.pk).update(state="draining")
    return {"to": two.pk}


def _silent(two: Host, workspace: Workspace) -> dict[str, Any]:
    Host.objects.filter(pk=two.pk).update(lease_until=None)
    return {"to": "two"}


def _other_machine(two: Host, workspace: Workspace) -> dict[str, Any]:
    Host.objects.filter(pk=two.pk).update(arch="arm64")
    return {"to": "two"}


def _other_qemu(two: Host, workspace: Workspace) -> dict[str, Any]:
    Host.objects.exclude(pk=two.pk).update(capabilities={"qemu": "7.2.0"})
    Host.objects.filter(pk=two.pk).update(capabilities={"qemu": "10.0.2"})
    Workspace.objects.update(status=Status.SLEEPING)
    return {"to": "two"}


def _static(two: Host, workspace: Workspace) -> dict[str, Any]:
    Workspace.objects.update(static_network=True)
    return {"to": "two"}


def _paused(two: Host, workspace: Workspace) -> dict[str, Any]:
    Workspace.objects.update(status=Status.PAUSED)
    return {"to": "two"}


REFUSED = [
    (lambda two, workspace: {"to": "one"}, 409, "same_host"),
    (lambda two, workspace: {"to": "three"}, 404, "not_found"),
    (_full, 409, "host_full"),
    (_draining, 409, "host_not_active"),
    (_silent, 409, "host_not_active"),
    (_other_machine, 409, "host_unfit"),
    (_other_qemu, 409, "host_unfit"),
    (_static, 409, "static_address"),
    (_paused, 409, "invalid_state"),
]


@pytest.mark.parametrize(("arrange", "status", "code"), REFUSED)
def test_a_move_that_cannot_be_is_refused_before_anything_changes(
    workspace: Workspace, hosts: tuple[Host, Host], arrange: Any, status: int, code: str
) -> None:
    body = arrange(hosts[1], workspace)
    before = Workspace.objects.values().get()
    answer = move(workspace, **body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.content
    assert Workspace.objects.values().get() == before
    assert not Move.objects.exists()
    assert not Operation.objects.exists()


def test_what_differs_is_named_and_without_memory_it_moves(workspace: Workspace, hosts: tuple[Host, Host]) -> None:
    body = _other_qemu(hosts[1], workspace)
    details = move(workspace, **body).json()["details"]
    assert details == {"differs": [{"what": "qemu", "source": "7.2.0", "target": "10.0.2"}]}
    assert move(workspace, **body, memory=False).status_code == 202


def test_a_static_address_is_given_up_only_by_word(workspace: Workspace, hosts: tuple[Host, Host]) -> None:
    assert move(workspace, **_static(hosts[1], workspace), address="new").status_code == 202


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "x" * 501}, {"reason": "x", "memory": "no"},
                                  {"reason": "x", "address": "keep"}, {"reason": "x", "to": 5}])  # fmt: skip
def test_a_wrong_body_names_its_field(workspace: Workspace, body: dict[str, Any]) -> None:
    answer = send("POST", f"/staff/workspaces/{workspace.pk}/move", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")


def test_only_staff_who_may_act_move(workspace: Workspace, api: Caller) -> None:
    path = f"/staff/workspaces/{workspace.pk}/move"
    assert send("POST", path, WHY, "hosts.read").status_code == 403
    assert api.post(path, WHY).status_code == 403
    assert Client().post(path, WHY).status_code == 401
    assert send("POST", "/staff/workspaces/ws_none/move", WHY).status_code == 404
    assert not Move.objects.exists()


def test_two_moves_of_one_are_one(workspace: Workspace) -> None:
    assert [move(workspace).status_code for _ in range(2)] == [202, 409]
    assert (Move.objects.count(), Operation.objects.count()) == (1, 1)


def test_a_move_is_cancelled_once_and_not_after_its_commit(workspace: Workspace) -> None:
    path = f"/staff/workspaces/{workspace.pk}/move"
    assert send("DELETE", path).json()["code"] == "invalid_state"
    move(workspace)
    assert send("DELETE", path).status_code == 202
    assert Operation.objects.get().cancel_requested
    assert StaffEntry.objects.filter(action="workspace.cancel_move").count() == 1
    Move.objects.update(state=MoveState.COMMITTED)
    answer = send("DELETE", path)
    assert (answer.status_code, answer.json()["code"]) == (409, "move_committed")


def test_a_host_with_a_move_is_not_removed(workspace: Workspace, hosts: tuple[Host, Host]) -> None:
    move(workspace)
    answer = send("DELETE", f"/staff/hosts/{hosts[1].pk}", WHY)
    assert (answer.status_code, answer.json()["code"]) == (409, "host_in_use")
    operation = Operation.objects.get()
    move_end(operation, MoveState.FAILED)
    assert send("DELETE", f"/staff/hosts/{hosts[1].pk}", WHY).status_code == 200
    assert Move.objects.get().target_name == "two"


def test_an_address_on_its_way_is_given_to_nobody_else(workspace: Workspace, api: Caller, hosts: Any) -> None:
    Host.objects.filter(pk=hosts[1].pk).update(subnet="10.130.0.0/30")
    move(workspace, to="two")
    assert Move.objects.get().address == "10.130.0.2"
    other = make_workspace(api.account, host=hosts[0], ip="10.129.240.10", status=Status.STOPPED, started_at=None)
    assert move(other, to="two").status_code == 503
    assert HELD_SECONDS > 0


# Drains


def drain(host: Host, **body: Any) -> Any:
    return send("POST", f"/staff/hosts/{host.pk}/drain", {**WHY, **body})


def test_a_drain_moves_what_is_off_first_and_two_at_once(api: Caller, hosts: tuple[Host, Host]) -> None:
    statuses = [Status.RUNNING, Status.SLEEPING, Status.STOPPED, Status.SLEEPING]
    rows = [
        make_workspace(api.account, host=hosts[0], ip=f"10.129.240.{9 + number}", status=status)
        for number, status in enumerate(statuses)
    ]
    answer = drain(hosts[0])
    assert answer.status_code == 202, answer.content
    shown = answer.json()["drain"]
    assert (shown["host"], shown["state"], shown["workspaces_left"], shown["moves"]) == ("one", "draining", 4, 0)
    assert drain(hosts[0]).json()["drain"]["created_at"] == shown["created_at"]
    assert [drain_hosts(), drain_hosts()] == [2, 0]
    begun = Move.objects.order_by("created_at").values_list("workspace_id", flat=True)
    assert list(begun) == [rows[2].pk, rows[1].pk]
    for operation in Operation.objects.all():
        Operation.objects.filter(pk=operation.pk).update(state=OperationState.SUCCEEDED, finished_at=Now())
    Move.objects.update(state=MoveState.COMMITTED)
    Workspace.objects.filter(pk__in=begun).update(host=hosts[1])
    assert drain_hosts() == 2
    assert Move.objects.filter(state=MoveState.LIVE, workspace_id=rows[0].pk).exists()


def test_running_ones_are_waited_for_until_the_deadline(api: Caller, hosts: tuple[Host, Host]) -> None:
    make_workspace(api.account, host=hosts[0], ip="10.129.240.9", status=Status.RUNNING)
    drain(hosts[0], running="wait", deadline_seconds=60)
    assert drain_hosts() == 0
    Drain.objects.update(deadline_at=Now())
    assert drain_hosts() == 1


def test_what_cannot_move_is_named_and_the_end_is_written(api: Caller, hosts: tuple[Host, Host]) -> None:
    row = make_workspace(api.account, host=hosts[0], ip="10.129.240.9", status=Status.STOPPED, static_network=True)
    drain(hosts[0])
    assert drain_hosts() == 0
    refusals = drain(hosts[0]).json()["drain"]["refusals"]
    assert [(each["workspace_id"], each["code"]) for each in refusals] == [(row.pk, "static_address")]
    Workspace.objects.all().delete()
    drain_hosts()
    shown = drain(hosts[0]).json()["drain"]
    assert (shown["state"], shown["refusals"], shown["workspaces_left"]) == ("done", [], 0)


def test_a_host_that_is_active_again_is_drained_no_more(api: Caller, hosts: tuple[Host, Host]) -> None:
    make_workspace(api.account, host=hosts[0], ip="10.129.240.9", status=Status.STOPPED)
    drain(hosts[0])
    send("POST", f"/staff/hosts/{hosts[0].pk}/activate", WHY)
    assert drain_hosts() == 0
    assert Arrival.objects.count() == 0


def test_what_a_drain_would_do_is_said_before(api: Caller, hosts: tuple[Host, Host]) -> None:
    Host.objects.filter(pk=hosts[1].pk).update(memory_mb=1536)
    sizes = {"memory_mb": 1024, "applied_memory_mb": 1024}
    for number in range(2):
        make_workspace(api.account, host=hosts[0], ip=f"10.129.240.{9 + number}", status=Status.RUNNING, **sizes)
    make_workspace(api.account, host=hosts[0], ip="10.129.240.20", status=Status.STOPPED, static_network=True)
    send("GET", f"/staff/hosts/{hosts[0].pk}")  # what is read once in a process
    with CaptureQueriesContext(connection) as queries:
        would = send("GET", f"/staff/hosts/{hosts[0].pk}").json()["host"]["would"]
    assert (would["moves"], would["lost"], len(would["fits_nowhere"])) == (1, 3, 2)
    missing = sorted(each["missing"][0]["what"] for each in would["fits_nowhere"])
    assert missing == ["another address", "memory_mb"]
    make_workspace(api.account, host=hosts[0], ip="10.129.240.30", status=Status.STOPPED)
    with CaptureQueriesContext(connection) as more:
        send("GET", f"/staff/hosts/{hosts[0].pk}")
    assert len(more) == len(queries)
