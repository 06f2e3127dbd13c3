"""Tokens of client credentials: their time, their scope, their refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from accounts.scopes import Scope
from namespaces.models import Namespace
from tests.accounts.test_credentials import as_bearer, other
from tests.callers import Caller
from tests.workspaces.rows import make_workspace

__all__ = ["other"]
pytestmark = pytest.mark.django_db


def test_a_token_is_issued_with_its_expiry(api: Caller) -> None:
    answer = api.post("/tokens", {"scope": "account", "label": "laptop"})
    body = answer.json()
    assert answer.status_code == 201
    assert set(body) == {"success", "token", "expiresAt", "scope", "ttl"}
    assert (body["success"], body["scope"], body["ttl"]) == (True, "account", 900)
    left = parse_datetime(body["expiresAt"]) - timezone.now()
    assert timedelta(seconds=890) < left <= timedelta(seconds=901)
    assert as_bearer(api, body["token"]).status_code == 200
    assert api.secret not in body["token"]


@pytest.mark.parametrize("ttl", [60, 3600])
def test_a_token_ends_by_time(api: Caller, monkeypatch: pytest.MonkeyPatch, ttl: int) -> None:
    token = api.post("/tokens", {"scope": "account", "ttl": ttl}).json()["token"]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + ttl - 2)
    assert as_bearer(api, token).status_code == 200
    monkeypatch.setattr(time, "time", lambda: now + ttl + 1)
    assert as_bearer(api, token).status_code == 401


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "scope"),
        ({"scope": "billing"}, "scope"),
        ({"scope": "account", "ttl": 59}, "ttl"),
        ({"scope": "account", "ttl": 3601}, "ttl"),
        ({"scope": "account", "ttl": "900"}, "ttl"),
        ({"scope": "account", "ttl": True}, "ttl"),
        ({"scope": "account", "ttl": 90.5}, "ttl"),
        ({"scope": "account", "label": 5}, "label"),
        ({"scope": "namespace"}, "namespace"),
        ({"scope": "workspace"}, "workspaceId"),
        ({"scope": "workspace", "workspaceId": 5}, "workspaceId"),
        ({"scope": "workspace", "workspace_id": 5}, "workspace_id"),
    ],
)
def test_a_wrong_token_request_is_400_and_named(api: Caller, body: Any, field: str) -> None:
    answer = api.post("/tokens", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert list(answer.json()["details"]) == [field]


@pytest.mark.parametrize("having", [Scope.ACCOUNT, Scope.NAMESPACE, Scope.WORKSPACE, Scope.BILLING])
def test_a_token_reaches_no_further_than_its_credential(
    api: Caller, scoped: Callable[..., Caller], other: Namespace, having: Scope
) -> None:
    inside, beside, outside = (
        make_workspace(api.account, namespace=other),
        make_workspace(api.account, namespace=other),
        make_workspace(api.account),
    )
    caller = scoped(api, having, namespace_id=other.pk, namespace_slug="other", workspace_id=inside.pk)
    asked = {
        "account": {"scope": "account"},
        "same namespace": {"scope": "namespace", "namespace": "other"},
        "another namespace": {"scope": "namespace", "namespace": "default"},
        "same workspace": {"scope": "workspace", "workspaceId": inside.pk},
        "workspace of the namespace": {"scope": "workspace", "workspaceId": beside.slug},
        "workspace outside": {"scope": "workspace", "workspaceId": outside.pk},
    }
    allowed = {
        Scope.ACCOUNT: set(asked),
        Scope.NAMESPACE: {"same namespace", "same workspace", "workspace of the namespace"},
        Scope.WORKSPACE: {"same workspace"},
        Scope.BILLING: set(),
    }[having]
    for name, body in asked.items():
        answer = caller.post("/tokens", body)
        if name in allowed:
            assert answer.status_code == 201, name
        else:
            assert (answer.status_code in (403, 404), answer.json()["success"]) == (True, False), name


def test_tokens_are_held_to_their_scope(api: Caller, other: Namespace) -> None:
    inside, outside = make_workspace(api.account, namespace=other), make_workspace(api.account)
    for body in ({"scope": "namespace", "namespace": "other"}, {"scope": "workspace", "workspaceId": inside.slug}):
        token = api.post("/tokens", body).json()["token"]
        assert as_bearer(api, token, f"/workspace/{inside.pk}").status_code == 200
        assert as_bearer(api, token, f"/workspace/{outside.pk}").status_code == 404
        assert as_bearer(api, token).json()["total"] == 1
