"""Client credentials and access tokens (wire contract, section 2)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import Credential
from accounts.scopes import Scope
from common import secrets_at_rest
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.rows import make_workspace

pytestmark = pytest.mark.django_db
LISTED = ["account", "billing"]


def as_bearer(api: Caller, token: str, path: str = "/workspace") -> Any:
    return api.client.get(path, headers={"Authorization": f"Bearer {token}"})


def with_secret(api: Caller, body: dict[str, Any], path: str = "/workspace") -> Any:
    pair = {"X-Client-ID": body["credential"]["client_id"], "X-Client-Secret": body["client_secret"]}
    return api.client.get(path, headers=pair)


@pytest.fixture
def other(api: Caller) -> Namespace:
    return Namespace.objects.create(account=api.account, name="Other", slug="other")


# Credentials


def test_a_credential_is_made_and_works(api: Caller) -> None:
    answer = api.post("/credentials", {"name": "ci", "scope": "account"})
    body = answer.json()
    assert (answer.status_code, body["success"]) == (201, True)
    assert set(body["credential"]) == {
        "id", "client_id", "name", "scope", "namespace", "workspace_id", "created_at", "last_used_at",
    }  # fmt: skip
    assert (body["credential"]["name"], body["credential"]["scope"]) == ("ci", "account")
    assert (body["credential"]["namespace"], body["credential"]["last_used_at"]) == (None, None)
    assert body["credential"]["created_at"].endswith("Z")
    assert with_secret(api, body).status_code == 200


def test_the_secret_is_nowhere_in_the_database(api: Caller) -> None:
    secret = api.post("/credentials", {"scope": "account"}).json()["client_secret"]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            shown = str(cursor.fetchall())
            assert secret not in shown
            assert secret.removeprefix("sec_") not in shown


@pytest.mark.parametrize("scope", list(Scope))
def test_credentials_of_every_scope(api: Caller, other: Namespace, scope: Scope) -> None:
    row = make_workspace(api.account, namespace=other)
    binding = {Scope.NAMESPACE: {"namespace": "other"}, Scope.WORKSPACE: {"workspace_id": row.slug}}.get(scope, {})
    body = api.post("/credentials", {"scope": scope, **binding}).json()
    shown = body["credential"]
    assert shown["scope"] == scope
    assert shown["namespace"] == ("other" if binding else None)
    assert shown["workspace_id"] == (row.pk if scope == Scope.WORKSPACE else None)
    assert with_secret(api, body).status_code == (403 if scope == Scope.BILLING else 200)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "scope"),
        ({"name": "ci"}, 400, "scope"),
        ({"scope": None}, 400, "scope"),
        ({"scope": ""}, 400, "scope"),
        ({"scope": "everything"}, 400, "scope"),
        ({"scope": 5}, 400, "scope"),
        ({"name": 5, "scope": "account"}, 400, "name"),
        ({"name": "x" * 121, "scope": "account"}, 400, "name"),
        ({"scope": "namespace"}, 400, "namespace"),
        ({"scope": "workspace"}, 400, "workspace_id"),
        ({"scope": "workspace", "workspace_id": 5}, 400, "workspace_id"),
        ({"scope": "workspace", "workspaceId": 5}, 400, "workspaceId"),
        ({"scope": "workspace", "workspaceId": None}, 400, "workspaceId"),
        ({"scope": "workspace", "workspaceId": "ws_a", "workspace_id": "ws_b"}, 400, "workspaceId"),
        ({"scope": "workspace", "workspaceId": "ws_missing"}, 404, None),
        ({"scope": "namespace", "namespace": 7}, 400, "namespace"),
        ({"scope": "namespace", "namespace": "missing"}, 404, None),
        ({"scope": "workspace", "workspace_id": "ws_missing"}, 404, None),
    ],
)
def test_a_wrong_credential_request_is_refused(api: Caller, body: Any, status: int, field: str | None) -> None:
    answer = api.post("/credentials", body)
    assert answer.status_code == status
    if field:
        assert list(answer.json()["details"]) == [field]
    assert Credential.objects.count() == 1


@pytest.mark.parametrize("spelling", ["workspace_id", "workspaceId"])
def test_the_workspace_of_a_scope_is_read_in_both_spellings(api: Caller, spelling: str) -> None:
    row = make_workspace(api.account)
    body = {"scope": "workspace", spelling: row.slug}
    assert api.post("/credentials", body).json()["credential"]["workspace_id"] == row.pk
    token = api.post("/tokens", body).json()["token"]
    listed = api.client.get("/workspace", headers={"Authorization": f"Bearer {token}"}).json()["workspaces"]
    assert [each["id"] for each in listed] == [row.pk]


def test_credentials_are_listed_newest_first_without_secrets(api: Caller, stranger: Caller) -> None:
    made = [api.post("/credentials", {"name": f"ci-{n}", "scope": scope}).json() for n, scope in enumerate(LISTED)]
    stranger.post("/credentials", {"name": "another account's", "scope": "account"})
    answer = api.get("/credentials")
    body = answer.json()
    assert answer.status_code == 200
    assert (set(body), body["success"]) == ({"success", "credentials", "total", "page", "limit"}, True)
    assert (body["total"], body["page"], body["limit"]) == (3, 1, 20)
    assert [row["name"] for row in body["credentials"]] == ["ci-1", "ci-0", "first"]
    used = body["credentials"][2].pop("last_used_at")
    assert used is not None
    assert body["credentials"][:2] == [one["credential"] for one in reversed(made)]
    hashes = Credential.objects.values_list("secret_hash", flat=True)
    for secret in (*(one["client_secret"] for one in made), api.secret, *hashes):
        assert secret not in answer.content.decode()


def test_the_list_of_credentials_has_pages(api: Caller) -> None:
    for number in range(4):
        api.post("/credentials", {"name": str(number), "scope": "billing"})
    names = [
        [row["name"] for row in api.get(f"/credentials?page={n}&limit=2").json()["credentials"]] for n in (1, 2, 3)
    ]
    assert names == [["3", "2"], ["1", "0"], ["first"]]
    for query, field in (("page=0", "page"), ("limit=101", "limit"), ("limit=x", "limit")):
        refused = api.get(f"/credentials?{query}")
        assert (refused.status_code, list(refused.json()["details"])) == (400, [field])


def test_no_credential_is_bound_to_a_scope_of_another_account(api: Caller, stranger: Caller) -> None:
    row = make_workspace(stranger.account)
    for path, scope, binding in (
        ("/credentials", "workspace", {"workspace_id": row.pk}),
        ("/tokens", "workspace", {"workspaceId": row.pk}),
    ):
        assert api.post(path, {"scope": scope, **binding}).status_code == 404


def test_a_rotation_ends_the_old_secret_and_its_tokens(api: Caller) -> None:
    made = api.post("/credentials", {"scope": "account"}).json()
    pair = {"X_Client_ID": made["credential"]["client_id"], "X_Client_Secret": made["client_secret"]}
    token = api.post("/tokens", {"scope": "account"}, **pair).json()["token"]
    assert as_bearer(api, token).status_code == 200
    rotated = api.post(f"/credentials/{made['credential']['id']}/rotate")
    assert rotated.status_code == 200
    body = rotated.json()
    assert body["credential"]["client_id"] == made["credential"]["client_id"]
    assert body["client_secret"] != made["client_secret"]
    assert with_secret(api, made).status_code == 401
    assert as_bearer(api, token).status_code == 401
    assert with_secret(api, body).status_code == 200


def test_a_deletion_ends_the_credential_and_its_tokens(api: Caller) -> None:
    made = api.post("/credentials", {"scope": "account"}).json()
    pair = {"X_Client_ID": made["credential"]["client_id"], "X_Client_Secret": made["client_secret"]}
    token = api.post("/tokens", {"scope": "account"}, **pair).json()["token"]
    answer = api.delete(f"/credentials/{made['credential']['id']}")
    assert (answer.status_code, answer.json()["success"]) == (200, True)
    assert answer.json()["message"]
    assert with_secret(api, made).status_code == 401
    assert as_bearer(api, token).status_code == 401
    for again in (
        api.delete(f"/credentials/{made['credential']['id']}"),
        api.post(f"/credentials/{made['credential']['id']}/rotate"),
    ):
        assert (again.status_code, again.json()["code"]) == (404, "not_found")


def test_an_inactive_account_is_refused_with_all_it_has(api: Caller) -> None:
    token = api.post("/tokens", {"scope": "account"}).json()["token"]
    type(api.account).objects.update(is_active=False)
    assert api.get("/workspace").status_code == 401
    assert as_bearer(api, token).status_code == 401


def test_an_unknown_id_and_a_wrong_secret_are_answered_alike(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    compare = secrets_at_rest.hmac.compare_digest

    def counting(a: str, b: str) -> bool:
        compared.append(b)
        return compare(a, b)

    monkeypatch.setattr(secrets_at_rest.hmac, "compare_digest", counting)
    answers = [
        api.get("/workspace", X_Client_ID=client_id, X_Client_Secret="wrong", X_Request_ID="same")
        for client_id in (api.client_id, "cli_unknown")
    ]
    assert answers[0].content == answers[1].content
    assert [answer.status_code for answer in answers] == [401, 401]
    assert len(compared) == 2  # the unknown one costs a comparison too


def test_the_use_is_remembered_at_most_once_a_minute(api: Caller) -> None:
    def used() -> Any:
        return Credential.objects.get().last_used_at

    assert used() is None
    api.get("/workspace")
    first = used()
    assert timezone.now() - first < timedelta(seconds=10)
    with CaptureQueriesContext(connection) as seen:
        for _ in range(3):
            api.get("/workspace")
    assert used() == first
    assert not [query for query in seen if query["sql"].startswith("UPDATE")]
    Credential.objects.update(last_used_at=first - timedelta(minutes=2))
    api.get("/workspace")
    assert used() >= first


# Tokens


def test_client_credentials_win_where_both_are_sent(api: Caller) -> None:
    token = api.post("/tokens", {"scope": "account"}).json()["token"]
    answer = api.get("/workspace", X_Client_Secret="wrong", Authorization=f"Bearer {token}")
    assert answer.status_code == 401


def test_a_create_is_forced_into_the_namespace_of_the_credential(
    api: Caller, scoped: Callable[..., Caller], other: Namespace
) -> None:
    caller = scoped(api, Scope.NAMESPACE, namespace_id=other.pk, namespace_slug="other")
    answer = caller.post("/workspace", {"namespace": "default"})
    assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")
    # No host is there: what refuses is after the namespace.
    assert caller.post("/workspace", {"namespace": "other"}).json()["code"] == "VM_UNAVAILABLE"
    assert caller.post("/workspace", {}).json()["code"] == "VM_UNAVAILABLE"
