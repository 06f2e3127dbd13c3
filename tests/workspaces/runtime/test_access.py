"""Switching the runtime on and off, and its tokens, with the credentials of the account."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import connections
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from common.errors import Forbidden
from tests.callers import Caller
from tests.sandboxes.rows import make_sandbox
from tests.workspaces.rows import make_workspace
from tests.world import assert_error
from workspaces.models import Activity, Workspace
from workspaces.runtime import access
from workspaces.runtime.tokens import require_holder
from workspaces.states import Status

pytestmark = pytest.mark.django_db


@pytest.fixture
def workspace(api: Caller) -> Workspace:
    return make_workspace(api.account)


def path_of(workspace: Workspace, rest: str = "") -> str:
    return f"/workspace/{workspace.pk}/runtime-api-access{rest}"


def actions(workspace: Workspace) -> list[str]:
    return list(Activity.objects.filter(workspace_id=workspace.pk).order_by("id").values_list("action", flat=True))


def test_it_is_off_until_it_is_enabled(api: Caller, workspace: Workspace) -> None:
    url = f"{configured.ENV.base_url}/r"
    assert api.get(path_of(workspace)).json() == {"success": True, "enabled": False, "url": url}
    for method, rest in (("GET", "/token"), ("POST", "/token"), ("GET", "/token/raw")):
        assert_error(api.send(method, path_of(workspace, rest)), 409, "runtime_disabled")
    assert api.get(f"/workspace/{workspace.pk}/details").json()["api_access"]["runtime"] is False
    made = api.post(path_of(workspace, "/enable")).json()
    assert (made["success"], made["enabled"], made["url"]) == (True, True, url)
    assert require_holder(made["token"]).workspace.pk == workspace.pk
    assert api.get(path_of(workspace)).json()["enabled"] is True
    assert api.get(f"/workspace/{workspace.pk}/details").json()["api_access"]["runtime"] is True


def test_a_gateway_token_is_given_for_an_hour_and_changes_nothing(api: Caller, workspace: Workspace) -> None:
    api.post(path_of(workspace, "/enable"))
    before = Workspace.objects.filter(pk=workspace.pk).values().get()
    body = api.get(path_of(workspace, "/token")).json()
    assert set(body) == {"success", "token", "expires_at", "url"}
    ends = parse_datetime(body["expires_at"])
    assert ends is not None
    assert abs(ends - timezone.now() - timedelta(seconds=3600)) < timedelta(seconds=60)
    assert Workspace.objects.filter(pk=workspace.pk).values().get() == before
    assert require_holder(body["token"])


def test_a_raw_token_comes_with_where_the_address_answers(api: Caller, workspace: Workspace, settings: Any) -> None:
    settings.ENV = settings.ENV.model_copy(update={"runtime_url": "http://127.0.0.1:8123/r"})
    api.post(path_of(workspace, "/enable"))
    body = api.get(path_of(workspace, "/token/raw")).json()
    place = {"ip": "127.0.0.1", "port": 8123, "url": "http://127.0.0.1:8123/r"}
    assert body == {"success": True, "token": body["token"], **place}
    assert require_holder(body["token"])


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://127.0.0.1", ("127.0.0.1", 443)),
        ("http://127.0.0.1/r", ("127.0.0.1", 80)),
        ("http://[::1]:8000/r", ("::1", 8000)),
        ("https://no-such-name.invalid/r", ("", 443)),
    ],
)
def test_where_an_address_answers(url: str, place: tuple[str, int]) -> None:
    assert tuple(access.find_place(url)) == place


def test_a_rotation_ends_earlier_tokens_of_both_kinds(api: Caller, workspace: Workspace) -> None:
    former = [api.post(path_of(workspace, "/enable")).json()["token"]]
    former.append(api.get(path_of(workspace, "/token/raw")).json()["token"])
    body = api.post(path_of(workspace, "/token")).json()
    assert set(body) == {"success", "token", "expires_at", "url"}
    for token in former:
        with pytest.raises(Forbidden, match="replaced"):
            require_holder(token)
    assert require_holder(body["token"])


def test_disabling_ends_every_token_also_once_it_is_enabled_again(api: Caller, workspace: Workspace) -> None:
    token = api.post(path_of(workspace, "/enable")).json()["token"]
    answer = api.post(path_of(workspace, "/disable")).json()
    assert answer == {"success": True, "enabled": False, "message": answer["message"]}
    with pytest.raises(Forbidden, match="off"):
        require_holder(token)
    other = api.post(path_of(workspace, "/enable")).json()["token"]
    with pytest.raises(Forbidden, match="replaced"):
        require_holder(token)
    assert require_holder(other)


def test_enabling_and_disabling_are_idempotent_and_each_change_leaves_one_entry(
    api: Caller, workspace: Workspace
) -> None:
    token = api.post(path_of(workspace, "/enable")).json()["token"]
    api.post(path_of(workspace, "/enable"))
    assert require_holder(token), "earlier tokens stay"
    api.get(path_of(workspace, "/token/raw"))
    api.post(path_of(workspace, "/token"))
    for _ in range(2):
        assert api.post(path_of(workspace, "/disable")).status_code == 200
    assert actions(workspace) == ["runtime_enabled", "runtime_raw_token", "runtime_rotated", "runtime_disabled"]


@pytest.mark.parametrize("status", [Status.RUNNING, Status.STOPPED, Status.CREATING, Status.FAILED, Status.DESTROYED])
def test_it_is_switched_in_any_state_but_deleting(api: Caller, status: Status) -> None:
    workspace = make_workspace(api.account, status=status)
    assert api.post(path_of(workspace, "/enable")).status_code == 200
    assert api.post(path_of(workspace, "/disable")).status_code == 200


@pytest.mark.parametrize("rest", ["/enable", "/disable", "/token"])
@pytest.mark.parametrize("enabled", [True, False])
def test_one_that_is_being_deleted_is_not_there_any_more(api: Caller, rest: str, enabled: bool) -> None:
    workspace = make_workspace(api.account, status=Status.DELETING, runtime_enabled=enabled)
    assert_error(api.post(path_of(workspace, rest)), 404, "not_found")
    assert actions(workspace) == []


def test_a_sandbox_has_one_by_its_workspace(api: Caller) -> None:
    sandbox, _ = make_sandbox(api.account, status="stopped")
    assert require_holder(api.post(path_of(sandbox.workspace, "/enable")).json()["token"])


@pytest.mark.django_db(transaction=True)
def test_rotations_at_once_leave_one_epoch_each(api: Caller, workspace: Workspace) -> None:
    api.post(path_of(workspace, "/enable"))

    def rotate(_: int) -> int:
        try:
            return int(api.post(path_of(workspace, "/token")).status_code)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(rotate, range(20))) == [200] * 20
    workspace.refresh_from_db()
    assert workspace.runtime_epoch == 20
