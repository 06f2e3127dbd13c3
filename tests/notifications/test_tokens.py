"""Send tokens: created, listed, revoked, deleted; what they open; that they end with their workspace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import Account
from accounts.scopes import Scope
from accounts.services import account_delete
from common.redis import redis_client
from notifications.authentication import SendThrottle
from notifications.models import NotificationEvent, SendToken
from notifications.sends import requests
from notifications.tokens import MOST_OF_WORKSPACE
from tests.callers import Caller
from tests.notifications.rows import fcm_device, send_token
from tests.notifications.senders import Sender
from tests.threads import run_at_once
from tests.workspaces.rows import make_workspace
from tests.world import assert_error
from workspaces.models import Workspace
from workspaces.rows import delete_row
from workspaces.states import Status

pytestmark = pytest.mark.django_db


def create(caller: Caller, **body: Any) -> Any:
    return caller.post("/notifications/tokens", body)


def send_with(caller: Caller, token: str, **headers: str) -> Any:
    body = '{"title": "Built"}'
    sent = {"Authorization": f"Bearer {token}", **headers}
    return caller.client.generic("POST", "/notifications/send", body, content_type="application/json", headers=sent)


def test_the_workspace_is_read_in_both_spellings(api: Caller) -> None:
    workspace = make_workspace(api.account)
    create(api, workspace_id=make_workspace(api.account).pk)
    assert create(api, workspaceId=workspace.pk).json()["token"]["workspace_id"] == workspace.pk
    for spelling in ("workspace_id", "workspaceId"):
        listed = api.get(f"/notifications/tokens?{spelling}={workspace.pk}").json()["tokens"]
        assert [row["workspace_id"] for row in listed] == [workspace.pk]
    refused = create(api, workspaceId=5)
    assert (refused.status_code, list(refused.json()["details"])) == (400, ["workspaceId"])


def test_a_token_is_created_used_revoked_and_deleted(api: Caller) -> None:
    workspace = make_workspace(api.account)
    answer = create(api, workspace_id=workspace.pk, name="alerts", metadata={"team": ["a", None]})
    assert answer.status_code == 201
    made = answer.json()["token"]
    assert set(made) == {"id", "workspace_id", "name", "metadata", "token_prefix", "status", "token"}
    assert (made["status"], made["metadata"], made["workspace_id"]) == ("active", {"team": ["a", None]}, workspace.pk)
    assert made["token"].startswith("snd_")
    assert made["token"].startswith(made["token_prefix"])
    assert isinstance(made["id"], int)
    assert send_with(api, made["token"]).status_code == 200
    revoked = api.post(f"/notifications/tokens/{made['id']}/revoke").json()["token"]
    assert (revoked["status"], "token" in revoked, revoked["revoked_at"] is None) == ("revoked", False, False)
    assert api.post(f"/notifications/tokens/{made['id']}/revoke").json()["token"] == revoked
    assert_error(send_with(api, made["token"]), 401, "unauthorized")
    assert api.delete(f"/notifications/tokens/{made['id']}").json()["message"]
    assert_error(api.delete(f"/notifications/tokens/{made['id']}"), 404, "not_found")
    assert list(NotificationEvent.objects.order_by("pk").values_list("action", flat=True)) == [
        "created", "revoked", "deleted",
    ]  # fmt: skip


def test_the_plaintext_is_stored_nowhere_and_the_list_has_none(api: Caller) -> None:
    made = create(api, workspace_id=make_workspace(api.account).pk).json()["token"]
    (listed,) = api.get("/notifications/tokens").json()["tokens"]
    assert set(listed) == set(made) - {"token"} | {"last_used_at", "created_at", "revoked_at"}
    row = SendToken.objects.values().get()
    assert made["token"] not in str(row)


def test_a_workspace_is_named_by_id_or_slug_and_is_the_callers(api: Caller, stranger: Caller) -> None:
    workspace = make_workspace(api.account, slug="mine")
    assert create(api, workspace_id="mine").json()["token"]["workspace_id"] == workspace.pk
    assert_error(create(stranger, workspace_id=workspace.pk), 404, "not_found")
    token = SendToken.objects.get()
    assert_error(stranger.post(f"/notifications/tokens/{token.pk}/revoke"), 404, "not_found")
    assert_error(stranger.delete(f"/notifications/tokens/{token.pk}"), 404, "not_found")
    assert stranger.get(f"/notifications/tokens?workspace_id={workspace.pk}").json()["tokens"] == []


def test_lists_are_filtered_by_workspace_and_by_scope(api: Caller, scoped: Callable[..., Caller]) -> None:
    workspaces = [make_workspace(api.account) for _ in range(2)]
    ids = [send_token(each)[0].pk for each in workspaces]
    for workspace, own in zip(workspaces, ids, strict=True):
        for named in (workspace.pk, workspace.slug):
            found = api.get(f"/notifications/tokens?workspace_id={named}").json()["tokens"]
            assert [each["id"] for each in found] == [own]
    inside = scoped(api, Scope.WORKSPACE, workspace_id=workspaces[0].pk)
    assert [each["id"] for each in inside.get("/notifications/tokens").json()["tokens"]] == [ids[0]]
    assert_error(inside.post(f"/notifications/tokens/{ids[1]}/revoke"), 404, "not_found")
    assert_error(create(inside, workspace_id=workspaces[1].pk), 404, "not_found")


BAD = [
    ({"name": "x"}, "workspace_id"),
    ({"workspace_id": 7}, "workspace_id"),
    ({"workspace_id": "w", "name": "x" * 121}, "name"),
    ({"workspace_id": "w", "name": None}, "name"),
    ({"workspace_id": "w", "metadata": []}, "metadata"),
    ({"workspace_id": "w", "metadata": {"k": "v" * 17_000}}, "metadata"),
]


@pytest.mark.parametrize(("body", "field"), BAD)
def test_what_is_wrong_is_named(api: Caller, body: dict[str, Any], field: str) -> None:
    make_workspace(api.account, slug="w")
    answer = create(api, **body)
    assert_error(answer, 400, "validation_error")
    assert list(answer.json()["details"]) == [field]
    assert not SendToken.objects.exists()


def test_a_workspace_has_a_hundred_tokens(api: Caller) -> None:
    workspace = make_workspace(api.account)
    for _ in range(MOST_OF_WORKSPACE):
        send_token(workspace)
    answer = create(api, workspace_id=workspace.pk)
    assert_error(answer, 409, "token_limit_exceeded")
    assert answer.json()["details"] == {"current": 100, "max": 100}


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer snd_unknown", "Basic snd_x", "Bearer \x7f", "Bearer sbt_x"])
def test_without_a_send_token_nothing_is_sent(api: Caller, header: str) -> None:
    headers = {**api.headers, "Authorization": header}
    answer = api.client.generic(
        "POST", "/notifications/send", '{"title": "x"}', content_type="application/json", headers=headers
    )
    assert_error(answer, 401, "unauthorized")


def test_only_the_bearer_decides(sender: Sender, stranger: Caller) -> None:
    assert sender.post({"title": "x"}, **stranger.headers).status_code == 200
    # And it opens nothing else.
    answer = sender.client.get("/notifications/tokens", headers={"Authorization": f"Bearer {sender.secret}"})
    assert_error(answer, 401, "unauthorized")


@pytest.mark.parametrize("status", [Status.DELETING, Status.DESTROYED])
def test_a_token_ends_with_its_workspace(sender: Sender, api: Caller, status: Status) -> None:
    Workspace.objects.filter(pk=sender.workspace.pk).update(status=status)
    assert_error(sender.post({"title": "x"}), 401, "unauthorized")
    assert_error(create(api, workspace_id=sender.workspace.pk), 404, "not_found")
    delete_row(sender.workspace)
    assert not SendToken.objects.exists()


def test_a_token_ends_with_its_account(sender: Sender) -> None:
    Account.objects.filter(pk=sender.account.pk).update(is_active=False)
    assert_error(sender.post({"title": "x"}), 401, "unauthorized")


def test_an_account_is_deleted_with_its_tokens(sender: Sender) -> None:
    delete_row(sender.workspace)
    account_delete(account=sender.account)
    assert not Account.objects.filter(pk=sender.account.pk).exists()


@pytest.fixture
def long_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other work the requests of a test take longer than a minute."""
    monkeypatch.setattr(SendThrottle, "window_seconds", 3600)


def test_a_minute_has_sixty_sends_of_a_token(sender: Sender) -> None:
    other = Sender(sender.client, sender.account, sender.workspace, *send_token(sender.workspace))
    assert [sender.post({"title": "x"}).status_code for _ in range(60)] == [200] * 60
    answer = sender.post({"title": "x"})
    assert_error(answer, 429, "rate_limited")
    assert 0 < int(answer["Retry-After"]) <= 60
    assert other.post({"title": "x"}).status_code == 200


@pytest.mark.usefixtures("long_minute")
@pytest.mark.django_db(transaction=True)
def test_a_restart_of_redis_gives_a_token_no_further_sends(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any number at once, whatever Redis has forgotten."""
    monkeypatch.setattr(requests, "WAIT_SECONDS", 0.0)
    fcm_device(sender.account, "phone")
    other = Sender(sender.client, sender.account, sender.workspace, *send_token(sender.workspace))
    assert [sender.post({"title": "x"}).status_code for _ in range(45)] == [200] * 45
    redis_client().flushall()
    found: list[Any] = []
    assert run_at_once(20, lambda _: found.append(sender.post({"title": "x"}))) == ["done"] * 20
    statuses = Counter(answer.status_code for answer in found)
    # Of those that come while the counter is made again some may be counted twice, none is forgotten.
    assert statuses.keys() == {200, 429}
    assert statuses[200] <= 15
    assert 0 < min(int(answer["Retry-After"]) for answer in found if answer.status_code == 429) <= 3600
    redis_client().flushall()
    left = 15 - statuses[200]
    assert [sender.post({"title": "x"}).status_code for _ in range(left + 1)] == [200] * left + [429]
    assert other.post({"title": "x"}).status_code == 200


def test_the_rate_is_a_setting(sender: Sender, settings: LazySettings) -> None:
    settings.ENV = settings.ENV.model_copy(update={"sends_per_minute": 2})
    assert [sender.post({"title": "x"}).status_code for _ in range(3)] == [200, 200, 429]


def test_lists_cost_the_same_queries_however_many_there_are(api: Caller) -> None:
    workspace = make_workspace(api.account)
    counted = []
    for _ in range(2):
        send_token(workspace)
        api.get("/notifications/tokens")
        with CaptureQueriesContext(
            connection,
        ) as queries:
            api.get("/notifications/tokens")
        counted.append(len(queries))
    assert counted[0] == counted[1]
