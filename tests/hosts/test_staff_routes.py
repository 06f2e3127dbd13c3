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
from django.db.models.functions import Now
from django.test import Client

from hosts import services
from hosts.models import JoinToken
from staff.api_tokens import token_create
from staff.models import StaffEntry, StaffToken
from tests.callers import Caller
from tests.hosts.rows import joined_host, open_network, staff_user
from tests.workspaces.rows import make_workspace
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
