"""Tokens at the sandbox level: who is let in, and what ends a token (wire contract, section 4)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections
from django.db.backends.utils import CursorWrapper
from django.db.models import Model
from django.test import Client

from accounts.services import account_switch
from common.secrets_at_rest import keyed_hash
from namespaces.models import Namespace
from sandboxes import services
from sandboxes.models import FormerToken, Sandbox, SandboxEvent, StaffToken
from sandboxes.tokens import COLUMNS, NAMESPACE_COLUMNS, require_holder
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.sandboxes.conftest import LEVEL_URLS, Holder
from tests.sandboxes.rows import make_sandbox
from tests.world import assert_error

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(LEVEL_URLS)]


def assert_refused(answer: Any, status: int) -> None:
    assert_error(answer, status, {401: "unauthorized", 403: "forbidden"}[status])


@pytest.fixture
def stopped(api: Caller) -> Holder:
    """The token of a sandbox without a machine: who is let in learns that it does not run."""
    made, token = make_sandbox(api.account, status="stopped")
    return Holder(made.pk, token)


def is_let_in(holder: Holder, token: str | None = None) -> bool:
    answer = holder.call(token=token)
    if answer.status_code != 409:
        assert_error(answer, answer.status_code)
        return False
    assert_error(answer, 409, "vm_not_running")
    return True


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer sbt_unknown"},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer nul\0byte ü"},
    ],
)
def test_no_token_and_an_unknown_one_are_unauthorized(stopped: Holder, headers: dict[str, str]) -> None:
    assert_refused(stopped.call(**headers), 401)


def test_the_token_counts_in_its_header_only(stopped: Holder) -> None:
    body = {"content_type": "application/json", "data": f'{{"text": "a", "token": "{stopped.token}"}}'}
    client = Client()
    client.cookies["token"] = stopped.token
    path = f"/s/{stopped.id}/files/create"
    for headers in ({}, {"X-Client-Secret": stopped.token}, {"Cookie": f"sessionid={stopped.token}"}):
        assert_refused(client.post(f"{path}?token={stopped.token}", headers=headers, **body), 401)


def test_credentials_of_the_account_are_none_of_the_sandbox(api: Caller, stopped: Holder) -> None:
    assert_refused(api.post(f"/s/{stopped.id}/files/create", {"text": "a"}), 401)
    minted = api.post("/tokens", {"scope": "account"}).json()["token"]
    assert_refused(stopped.call(token=minted), 401)
    assert_error(api.send("GET", "/sandbox", X_Client_ID="", Authorization=f"Bearer {stopped.token}"), 401)


def test_another_sandboxs_token_is_forbidden(api: Caller, stranger: Caller, stopped: Holder) -> None:
    for account in (api.account, stranger.account):
        other, token = make_sandbox(account, status="stopped")
        assert is_let_in(Holder(other.pk, token))
        assert_refused(stopped.call(token=token), 403)
    assert_refused(stopped.call(id="sbx_2222222222222222"), 403)
    assert_refused(stopped.call(id="nonsense"), 403)


def test_the_token_of_a_fork_opens_nothing_of_its_parent_and_the_reverse(api: Caller, holder: Holder) -> None:
    fork = api.post(f"/sandbox/{holder.id}/fork").json()["forks"][0]["sandbox"]
    copy = Holder(fork["id"], fork["token"])
    assert (holder.call().status_code, copy.call().status_code) == (200, 200)
    assert_refused(holder.call(token=copy.token), 403)
    assert_refused(copy.call(token=holder.token), 403)


def test_a_token_is_replaced_at_once(api: Caller, stopped: Holder) -> None:
    answer = api.post(f"/sandbox/{stopped.id}/regenerate-token")
    body = answer.json()
    assert (answer.status_code, body["success"], body["sandbox"]) == (200, True, {"id": stopped.id})
    assert body["token"] != stopped.token
    assert is_let_in(stopped, body["token"])
    assert_refused(stopped.call(), 403)
    stored = Sandbox.objects.get()
    assert stored.token_hash == keyed_hash(body["token"])
    assert FormerToken.objects.get().token_hash == keyed_hash(stopped.token)
    assert SandboxEvent.objects.get().action == "token_regenerated"
    assert body["token"] not in api.get(f"/sandbox/{stopped.id}").content.decode()


def test_a_token_that_was_replaced_is_no_guess(api: Caller, stopped: Holder, monkeypatch: Any) -> None:
    counted: list[object] = []
    monkeypatch.setattr("workspaces.data_plane.holders.count_wrong_secret", counted.append)
    api.post(f"/sandbox/{stopped.id}/regenerate-token")
    assert_refused(stopped.call(), 403)
    assert counted == []
    assert_refused(stopped.call(token="sbt_guessed"), 401)
    assert len(counted) == 1


def test_of_former_tokens_the_last_hundred_are_forbidden(api: Caller, stopped: Holder, monkeypatch: Any) -> None:
    monkeypatch.setattr(services, "FORMER_TOKENS", 2)
    tokens = [stopped.token]
    tokens += [api.post(f"/sandbox/{stopped.id}/regenerate-token").json()["token"] for _ in range(4)]
    assert [stopped.call(token=token).status_code for token in tokens] == [401, 401, 403, 403, 409]
    assert FormerToken.objects.count() == 2


def test_tokens_regenerated_at_once_end_each_other(api: Caller, stopped: Holder) -> None:
    def regenerate(_: int) -> str:
        try:
            return str(api.post(f"/sandbox/{stopped.id}/regenerate-token").json()["token"])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        tokens = list(pool.map(regenerate, range(8)))
    assert sorted(stopped.call(token=token).status_code for token in tokens) == [403] * 7 + [409]
    assert FormerToken.objects.count() == 8


def test_a_key_of_the_installation_that_was_replaced_keeps_tokens_valid(stopped: Holder, settings: Any) -> None:
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another key of this installation, long enough"
    assert is_let_in(stopped)


def test_a_deleted_sandboxs_tokens_are_unknown(api: Caller, holder: Holder, vmhost: FakeHost) -> None:
    former, vmhost.held_tasks = holder.token, []
    holder.token = api.post(f"/sandbox/{holder.id}/regenerate-token").json()["token"]
    services.sandbox_delete(workspace=holder.workspace, actor="owner")
    assert_refused(holder.call(), 401)  # from the moment of the request, before the machine is gone
    assert_error(api.post(f"/sandbox/{holder.id}/regenerate-token"), 404, "not_found")
    vmhost.release_tasks()
    vmhost.settle()
    for token in (former, holder.token):
        assert_refused(holder.call(token=token), 401)
    assert not FormerToken.objects.exists()


def test_an_inactive_accounts_sandbox_lets_no_holder_in(api: Caller, stopped: Holder) -> None:
    account_switch(api.account, is_active=False)
    assert_refused(stopped.call(), 401)
    account_switch(api.account, is_active=True)
    assert is_let_in(stopped)


def test_a_suspended_namespaces_sandbox_lets_no_holder_in_until_it_is_active(api: Caller, stopped: Holder) -> None:
    path = f"/namespaces/{Namespace.objects.get().pk}"
    team = Namespace.objects.create(account=api.account, name="Team", slug="team")
    made, token = make_sandbox(api.account, namespace=team, status="stopped")
    api.post(f"/namespaces/{team.pk}/suspend")
    assert_error(Holder(made.pk, token).call(), 403, "namespace_suspended")
    assert is_let_in(stopped), path
    api.post(f"/namespaces/{team.pk}/activate")
    assert is_let_in(Holder(made.pk, token))


@pytest.mark.parametrize(
    ("action", "status", "code"), [("block", 409, "vm_not_running"), ("stop", 402, "quota_exceeded")]
)
def test_a_quota_that_stops_machines_ends_the_use_of_sandboxes(
    api: Caller, stopped: Holder, action: str, status: int, code: str
) -> None:
    Namespace.objects.filter(is_default=True).update(
        status="suspended", suspended_by_quota=True, quota_stops_workspaces=action == "stop"
    )
    assert_error(stopped.call(), status, code)


@pytest.mark.parametrize("path", ["nothing", "files/nothing", ""])
def test_unknown_paths_are_not_found_for_everybody(stopped: Holder, path: str) -> None:
    headers = {"Authorization": f"Bearer {stopped.token}"}
    for sent in ({}, headers):
        assert_error(Client().post(f"/s/{stopped.id}/{path}", headers=sent), 404, "not_found")


@pytest.mark.parametrize("others", [0, 20])
def test_a_request_costs_one_query_however_many_sandboxes_and_former_tokens_there_are(
    api: Caller, stopped: Holder, others: int, monkeypatch: Any
) -> None:
    for _ in range(others):
        make_sandbox(api.account, status="stopped")
        stopped.token = api.post(f"/sandbox/{stopped.id}/regenerate-token").json()["token"]
    statements: list[str] = []
    execute = CursorWrapper.execute

    def noted(self: Any, sql: str, params: Any = None) -> Any:  # of all threads that serve the request
        statements.append(sql)
        return execute(self, sql, params)

    assert is_let_in(stopped)
    monkeypatch.setattr(CursorWrapper, "execute", noted)
    assert is_let_in(stopped)
    assert len(statements) == 1, statements
    statements.clear()
    assert_refused(stopped.call(token="sbt_unknown"), 401)
    assert len(statements) == 2, "whether it was replaced is the second question"


@pytest.mark.parametrize("model", [Sandbox, FormerToken, StaffToken])
def test_tokens_are_found_by_an_index(transactional_db: None, model: type[Model]) -> None:
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, model._meta.db_table)
    kept = [each["columns"] for each in found.values() if each["unique"] or each["primary_key"]]
    assert ["token_hash"] in kept


def test_a_holder_has_the_columns_of_the_row(api: Caller, stopped: Holder, django_assert_num_queries: Any) -> None:
    expected = Sandbox.objects.select_related("workspace__namespace").get()
    with django_assert_num_queries(1):
        found = require_holder(stopped.id, stopped.token).sandbox
        for model, wanted, names in (
            (found, expected, ("pk", "token_hash", "workspace_id")),
            (found.workspace, expected.workspace, ("pk", "namespace_id", *COLUMNS)),
            (found.workspace.namespace, expected.workspace.namespace, ("pk", *NAMESPACE_COLUMNS)),
        ):
            assert {name: getattr(model, name) for name in names} == {name: getattr(wanted, name) for name in names}
    found.workspace.refresh_from_db(fields=["status"])
    assert found.workspace.status == "stopped"
