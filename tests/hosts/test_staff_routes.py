"""Tokens of staff, and what they open: who makes a machine a host, and who removes it."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from hosts import services
from hosts.models import JoinToken
from staff.api_tokens import token_create
from staff.models import StaffEntry, StaffToken
from tests.callers import Caller
from tests.hosts.rows import joined_host, open_network, staff_user
from tests.workspaces.rows import end_leases, make_workspace, renew_leases
from vmbackend.models import Host
from vmbackend.services import request_leave
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db


@pytest.fixture
def user(db: None) -> User:
    return staff_user()


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts whose credentials were ended."""
    ended: list[str] = []
    monkeypatch.setattr(services, "drop_credentials", ended.append)
    return ended


@pytest.fixture
def opened(settings: LazySettings, tmp_path: Path) -> None:
    settings.STATE = tmp_path
    open_network()


def send(token: str, method: str, path: str, body: str = "{}") -> Any:
    headers = {"Authorization": f"Bearer {token}"}
    return Client().generic(method, path, body, content_type="application/json", headers=headers)


def token_of(user: User, *can: str) -> str:
    return token_create(user=user, can=can or ("hosts.read", "hosts.act"), ttl_seconds=60).text


def test_a_token_of_staff_makes_one_for_a_machine(user: User, opened: None) -> None:
    answer = send(token_of(user), "POST", "/staff/hosts/tokens", '{"name": "two", "ttl_seconds": 60}')
    assert answer.status_code == 201, answer.content
    body = answer.json()
    assert body["command"] == f"make join CONTROL=https://192.0.2.1:10000 TOKEN={body['token']}"
    row = JoinToken.objects.get()
    assert (row.name, row.created_by) == ("two", "staff ada")
    entry = StaffEntry.objects.get(action="host.make_token")
    assert (entry.user_name, entry.object_id) == ("ada", row.pk)
    assert body["token"] not in str(vars(entry)) + str(vars(row))


def test_an_instance_that_was_not_opened_says_so(user: User, settings: LazySettings, tmp_path: Path) -> None:
    settings.STATE = tmp_path
    answer = send(token_of(user), "POST", "/staff/hosts/tokens")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "make host-token" in answer.json()["message"]


@pytest.mark.parametrize(
    "body",
    ['{"name": "a b"}', '{"ttl_seconds": 59}', '{"ttl_seconds": 3601}', '{"ttl_seconds": "60"}', '{"roles": []}'],
)
def test_a_wrong_request_makes_no_token(user: User, opened: None, body: str) -> None:
    answer = send(token_of(user), "POST", "/staff/hosts/tokens", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert not JoinToken.objects.exists()


@pytest.mark.parametrize("change", ["expired", "inactive", "no staff", "deleted", "not permitted", "read only"])
def test_a_token_ends_with_its_time_its_user_and_what_that_user_may_do(user: User, opened: None, change: str) -> None:
    token = token_of(user, "hosts.read") if change == "read only" else token_of(user)
    if change == "expired":
        StaffToken.objects.update(expires_at=Now() - timedelta(seconds=1))
    elif change == "inactive":
        User.objects.update(is_active=False)
    elif change == "no staff":
        User.objects.update(is_staff=False)
    elif change == "deleted":
        user.delete()
    elif change == "not permitted":
        User.objects.update(is_superuser=False)
        user.user_permissions.add(Permission.objects.get(codename="view_host"))
    expected = 403 if change in ("not permitted", "read only") else 401
    assert send(token, "POST", "/staff/hosts/tokens").status_code == expected
    assert not JoinToken.objects.exists()


def test_other_credentials_are_refused(api: Caller, opened: None) -> None:
    assert api.post("/staff/hosts/tokens", {}).status_code == 403
    assert Client().post("/staff/hosts/tokens").status_code == 401
    assert send("stf_unknown", "POST", "/staff/hosts/tokens").status_code == 401
    assert send("another", "POST", "/staff/hosts/tokens").status_code == 403


def test_a_token_of_staff_is_none_of_an_account(user: User) -> None:
    assert send(token_of(user), "GET", "/namespaces").status_code == 401


def test_a_host_is_removed_with_its_credentials(
    user: User, dropped: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    host = joined_host()
    with django_capture_on_commit_callbacks(execute=True):
        answer = send(token_of(user), "DELETE", f"/staff/hosts/{host.pk}", '{"reason": "sold"}')
    assert answer.status_code == 200, answer.content
    assert (list(Host.objects.all()), dropped) == ([], [host.pk])
    entry = StaffEntry.objects.get(action="host.remove")
    assert (entry.object_id, entry.reason) == (host.pk, "sold")
    assert send(token_of(user), "DELETE", f"/staff/hosts/{host.pk}", '{"reason": "x"}').status_code == 404


def test_a_host_with_workspaces_stays(user: User, api: Caller, dropped: list[str]) -> None:
    host = joined_host()
    Workspace.objects.filter(pk=make_workspace(api.account).pk).update(host=host)
    answer = send(token_of(user), "DELETE", f"/staff/hosts/{host.pk}", '{"reason": "sold"}')
    assert (answer.status_code, answer.json()["code"]) == (409, "host_in_use")
    assert answer.json()["details"] == {"workspaces": 1}
    assert send(token_of(user), "DELETE", f"/staff/hosts/{host.pk}").status_code == 400
    assert (Host.objects.filter(pk=host.pk).exists(), dropped) == (True, [])


def test_a_machine_that_leaves_is_removed_if_it_has_no_workspaces(
    api: Caller, dropped: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    host = joined_host()
    request_leave(host_id=host.pk)
    workspace = make_workspace(api.account)
    Workspace.objects.filter(pk=workspace.pk).update(host=host)
    assert services.remove_leaving_hosts() == 0
    host.refresh_from_db()
    assert host.leaving_at is None
    Workspace.objects.filter(pk=workspace.pk).update(host=None)
    request_leave(host_id=host.pk)
    with django_capture_on_commit_callbacks(execute=True):
        assert [services.remove_leaving_hosts() for _ in range(2)] == [1, 0]
    assert dropped == [host.pk]


def test_credentials_of_a_host_that_is_gone_are_ended(dropped: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    host = joined_host()
    monkeypatch.setattr(services, "list_host_roles", lambda: {host.pk, "host_gone"})
    assert services.remove_former_credentials() == 1
    assert dropped == ["host_gone"]


def test_the_command_line_makes_tokens(user: User, opened: None) -> None:
    out = StringIO()
    call_command("staff_token", "ada", "--can", "hosts.read,hosts.act", "--ttl", "1h", stdout=out)
    assert send(out.getvalue().strip(), "POST", "/staff/hosts/tokens").status_code == 201
    out = StringIO()
    call_command("host_token", "--name", "three", stdout=out)
    assert out.getvalue().startswith("make join CONTROL=https://192.0.2.1:10000 TOKEN=join_")
    assert JoinToken.objects.filter(name="three", created_by="staff command line").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("staff_token", "nobody"),
        ("staff_token", "ada", "--can", "everything"),
        ("staff_token", "ada", "--can", ""),
        ("staff_token", "ada", "--ttl", "soon"),
        ("staff_token", "ada", "--ttl", "9000d"),
        ("host_token", "--ttl", "2h"),
        ("host_token", "--name", "A B"),
    ],
)
def test_a_wrong_command_line_is_a_sentence(user: User, opened: None, command: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        call_command(*command, stdout=StringIO())
    assert not JoinToken.objects.exists()
    assert not StaffToken.objects.exists()


def test_hosts_are_listed_with_as_many_queries_for_three_as_for_one(user: User, django_assert_num_queries: Any) -> None:
    token = token_of(user)
    joined_host("one")
    send(token, "GET", "/staff/hosts")  # what is read once in a process
    with CaptureQueriesContext(connection) as first:
        assert send(token, "GET", "/staff/hosts").json()["total"] == 1
    joined_host("two"), joined_host("three")
    with django_assert_num_queries(len(first)):
        body = send(token, "GET", "/staff/hosts?limit=2").json()
    assert [host["name"] for host in body["hosts"]] == ["one", "three"]
    assert (body["total"], body["page"], body["limit"]) == (3, 1, 2)


def test_a_list_is_filtered_by_state_label_and_name(user: User) -> None:
    token, host = token_of(user), joined_host("one")
    other = joined_host("two")
    renew_leases(pk=host.pk)
    Host.objects.filter(pk=host.pk).update(labels={"disk": "nvme"}, zone="a")

    def names(query: str) -> list[str]:
        return [each["name"] for each in send(token, "GET", f"/staff/hosts?{query}").json()["hosts"]]

    assert names("state=active") == names("label=disk") == names("label=disk%3Dnvme") == names("search=on") == ["one"]
    assert names("state=unreachable") == names(f"search={other.pk}") == ["two"]
    assert names("label=disk%3Dssd") == names("state=gone") == names("search=x") == []
    assert send(token, "GET", "/staff/hosts?state=alive").status_code == 400


def test_a_host_is_shown_with_what_is_lost_with_it(user: User, api: Caller) -> None:
    host = joined_host("one")
    Workspace.objects.filter(pk=make_workspace(api.account).pk).update(host=host)
    kept = {"name": "w.1.5", "machine_id": "ws_a", "epoch": 1, "kept_since": 5.0, "size_bytes": 9}
    Host.objects.filter(pk=host.pk).update(orphans=[kept], images=["docker.io/library/alpine:3"])
    shown = send(token_of(user), "GET", f"/staff/hosts/{host.pk}").json()["host"]
    assert shown["orphans"] == [{"workspace_id": "ws_a", "epoch": 1, "kept_since": 5.0, "size_bytes": 9}]
    assert (shown["would"]["lost"], shown["machines"]["running"], shown["roles"]) == (1, 1, ["host"])
    assert (shown["state"], shown["lease_until"], shown["problem"]) == ("unreachable", None, None)
    assert send(token_of(user), "GET", "/staff/hosts/host_none").status_code == 404


def test_name_labels_and_zone_are_changed_with_a_reason(user: User) -> None:
    host, path = joined_host("one"), "/staff/hosts/{}"
    joined_host("two")
    token = token_of(user)
    body = '{"name": "first", "labels": {"disk": "nvme"}, "zone": "a", "reason": "new rack"}'
    shown = send(token, "PATCH", path.format(host.pk), body).json()["host"]
    assert (shown["name"], shown["labels"], shown["zone"]) == ("first", {"disk": "nvme"}, "a")
    assert StaffEntry.objects.get(action="host.change").reason == "new rack"
    taken = send(token, "PATCH", path.format(host.pk), '{"name": "two", "zone": "b", "reason": "x"}')
    assert (taken.status_code, taken.json()["code"]) == (409, "name_taken")
    for wrong in ('{"zone": "b"}', '{"zone": "b c", "reason": "x"}', '{"labels": {"a b": "c"}, "reason": "x"}'):
        assert send(token, "PATCH", path.format(host.pk), wrong).status_code == 400, wrong
    host.refresh_from_db()
    assert (host.name, host.zone) == ("first", "a")
    assert StaffEntry.objects.filter(action="host.change").count() == 1


def test_the_state_of_a_host_is_set_once(user: User) -> None:
    token, host = token_of(user), joined_host("one")
    renew_leases()
    acts = [("drain", 202, "draining"), ("drain", 202, "draining"), ("maintenance", 200, "maintenance")]
    for act, status, state in [*acts, ("activate", 200, "active")]:
        answer = send(token, "POST", f"/staff/hosts/{host.pk}/{act}", '{"reason": "why"}')
        assert (answer.status_code, answer.json()["host"]["state"]) == (status, state)
        assert send(token, "POST", f"/staff/hosts/{host.pk}/{act}").status_code == 400
    actions = list(StaffEntry.objects.order_by("pk").values_list("action", flat=True))
    assert actions == ["host.draining", "host.maintenance", "host.active"]


def test_a_host_is_given_up_once_it_is_silent_and_by_its_name(user: User) -> None:
    token, host = token_of(user), joined_host("one")
    path = f"/staff/hosts/{host.pk}/give-up"
    renew_leases()
    alive = send(token, "POST", path, '{"reason": "why", "confirm": "one"}')
    assert (alive.status_code, alive.json()["code"]) == (409, "host_is_alive")
    end_leases()
    assert send(token, "POST", path, '{"reason": "why", "confirm": "two"}').status_code == 400
    assert not StaffEntry.objects.exists()
    given = send(token, "POST", path, '{"reason": "why", "confirm": "one"}')
    assert (given.status_code, given.json()["host"]["state"]) == (202, "gone")


def test_a_reader_changes_nothing(user: User) -> None:
    token, host = token_of(user, "hosts.read"), joined_host("one")
    assert send(token, "GET", "/staff/hosts").status_code == 200
    for act in ("drain", "activate", "maintenance", "give-up"):
        assert send(token, "POST", f"/staff/hosts/{host.pk}/{act}", '{"reason": "why"}').status_code == 403
    for method in ("PATCH", "DELETE"):
        assert send(token, method, f"/staff/hosts/{host.pk}", '{"reason": "why"}').status_code == 403
