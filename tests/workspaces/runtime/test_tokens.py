"""Tokens of the runtime: who is let in, and what ends a token."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings

from accounts.services import account_switch
from namespaces.models import Namespace
from tests.callers import Caller
from tests.credential_kinds import headers_by_kind
from tests.workspaces.rows import make_workspace, runtime_token
from tests.workspaces.runtime.conftest import Holder
from tests.world import World, assert_error
from workspaces.data_plane import holders
from workspaces.models import Workspace
from workspaces.runtime import access, tokens
from workspaces.runtime.tokens import GATEWAY, RAW, make_gateway_token, make_raw_token, require_holder

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def stopped(api: Caller) -> Holder:
    """A token for a workspace without a machine: who is let in learns that it does not run."""
    workspace = make_workspace(api.account, status="stopped")
    return Holder(workspace.pk, runtime_token(workspace))


def assert_refused(answer: Any, status: int) -> None:
    assert_error(answer, status, {401: "unauthorized", 403: "forbidden"}[status])


def assert_let_in(answer: Any) -> None:
    assert_error(answer, 409, "vm_not_running")


@pytest.mark.parametrize("kind", [GATEWAY, RAW])
def test_both_kinds_let_in(stopped: Holder, kind: str) -> None:
    token = make_raw_token(stopped.workspace) if kind == RAW else make_gateway_token(stopped.workspace)[0]
    assert token.startswith(kind)
    assert_let_in(stopped.get("/health", token=token))


@pytest.mark.parametrize(
    "token",
    ["", "rtg_", "rtg_ws_a.1:abc:def", "rtr_", "sbt_unknown", "x" * 10_000, "rtg_" + "x" * 10_000, "nul\0byte ü"],
)
def test_no_token_and_an_unknown_one_are_unauthorized(stopped: Holder, token: str) -> None:
    assert_refused(stopped.get("/health", token=token), 401)


@pytest.mark.parametrize("place", [0, 4, 8, -1])
def test_a_token_with_another_byte_is_none(stopped: Holder, place: int) -> None:
    found = list(stopped.token)
    found[place] = "B" if found[place] != "B" else "C"
    assert_refused(stopped.get("/health", token="".join(found)), 401)


def test_a_kind_cannot_be_made_of_the_other(stopped: Holder) -> None:
    """A gateway token that its holder renames would never end."""
    assert_refused(stopped.get("/health", token=RAW + stopped.token.removeprefix(GATEWAY)), 401)


def test_a_gateway_token_ends_after_an_hour_and_a_raw_one_does_not(stopped: Holder, monkeypatch: Any) -> None:
    raw = make_raw_token(stopped.workspace)
    monkeypatch.setattr(tokens, "GATEWAY_SECONDS", -1)  # as if the hour were over
    answer = stopped.get("/health")
    assert_refused(answer, 401)
    assert "expired" in answer.json()["message"]
    assert_let_in(stopped.get("/health", token=raw))


def test_what_has_ended_is_no_guess(stopped: Holder, monkeypatch: Any) -> None:
    counted: list[object] = []
    monkeypatch.setattr(holders, "count_wrong_secret", counted.append)
    access.runtime_rotate(workspace=stopped.workspace, actor="owner")
    assert_refused(stopped.get("/health"), 403)
    monkeypatch.setattr(tokens, "GATEWAY_SECONDS", -1)
    assert_refused(stopped.get("/health"), 401)
    assert_refused(stopped.get("/health", token=""), 401)
    assert counted == []
    assert_refused(stopped.get("/health", token="rtg_guessed"), 401)
    assert len(counted) == 1


def test_the_token_counts_in_its_header_only(stopped: Holder) -> None:
    client = Client()
    client.cookies["token"] = stopped.token
    for headers in ({}, {"X-Client-Secret": stopped.token}, {"Cookie": f"sessionid={stopped.token}"}):
        assert_refused(client.get(f"/r/health?token={stopped.token}", headers=headers), 401)


def test_no_other_credential_opens_it(committed_world: World) -> None:
    by_kind, _ = headers_by_kind(committed_world)
    for kind, headers in by_kind.items():
        status = Client().get("/r/health", headers=headers).status_code
        assert (status == 401) == (kind != "runtimeToken"), kind


def test_the_token_opens_nothing_else(api: Caller, stopped: Holder) -> None:
    bearer = f"Bearer {stopped.token}"
    for path in ("/workspace", f"/workspace/{stopped.id}", f"/workspace/{stopped.id}/runtime-api-access/token"):
        assert_error(api.send("GET", path, X_Client_ID="", X_Client_Secret="", Authorization=bearer), 401)
    sandbox = "/s/" + stopped.id.replace("ws_", "sbx_") + "/files/list"
    assert_error(Client().post(sandbox, headers={"Authorization": bearer}), 401)


@pytest.mark.parametrize("written", [str, str.upper, lambda id: id.replace("_", "-")])
def test_an_address_that_names_a_workspace_takes_its_tokens_only(api: Caller, stopped: Holder, written: Any) -> None:
    assert_let_in(stopped.get(f"/{written(stopped.id)}/health"))
    other = runtime_token(make_workspace(api.account, status="stopped"))
    assert_refused(stopped.get(f"/{written(stopped.id)}/health", token=other), 403)


@pytest.mark.parametrize("target", ["default", "local"])
def test_each_route_is_below_the_names_of_the_target_too(stopped: Holder, target: str) -> None:
    assert_let_in(stopped.get(f"/runtimes/{target}/health"))
    assert_error(stopped.get("/runtimes/other/health"), 404)


def suspend(workspace: Workspace) -> None:
    Namespace.objects.filter(pk=workspace.namespace_id).update(status="suspended", suspended_by_hand=True)


def stop_by_quota(workspace: Workspace) -> None:
    Namespace.objects.filter(pk=workspace.namespace_id).update(
        status="suspended", suspended_by_quota=True, quota_stops_workspaces=True
    )


def block_by_quota(workspace: Workspace) -> None:
    Namespace.objects.filter(pk=workspace.namespace_id).update(status="suspended", suspended_by_quota=True)


def begin_delete(workspace: Workspace) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(status="deleting")


def delete(workspace: Workspace) -> None:
    Workspace.objects.filter(pk=workspace.pk).delete()


def deactivate(workspace: Workspace) -> None:
    account_switch(account=workspace.account, is_active=False)


def disable(workspace: Workspace) -> None:
    access.runtime_disable(workspace=workspace, actor="owner")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        (suspend, 403, "namespace_suspended"),
        (stop_by_quota, 402, "quota_exceeded"),
        (block_by_quota, 409, "vm_not_running"),
        (begin_delete, 401, "unauthorized"),
        (delete, 401, "unauthorized"),
        (deactivate, 401, "unauthorized"),
        (disable, 403, "forbidden"),
    ],
)
def test_each_request_looks_at_the_row(stopped: Holder, change: Any, status: int, code: str) -> None:
    assert_let_in(stopped.get("/health"))
    change(stopped.workspace)
    assert_error(stopped.get("/health"), status, code)


def test_the_row_takes_one_query_and_no_encrypted_column(stopped: Holder) -> None:
    require_holder(stopped.token)  # compiles it
    with CaptureQueriesContext(connection) as captured:
        holder = require_holder(stopped.token)
        assert holder.workspace.namespace.slug == "default"
        for name in holders.COLUMNS:
            getattr(holder.workspace, name)
    assert len(captured) == 1
    assert '"env"' not in captured[0]["sql"]


def test_tokens_outlive_a_change_of_the_installations_key(stopped: Holder, settings: Any) -> None:
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        assert_let_in(stopped.get("/health"))
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[]):
        assert_refused(stopped.get("/health"), 401)
