"""One key, one snapshot, one set of forks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from tests.callers import Caller
from tests.workspaces.snapshots.conftest import Parent
from workspaces.models import Operation, Snapshot, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(parent: Parent, path: str, body: dict[str, Any], count: int = 20) -> list[Any]:
    def call(_: int) -> Any:
        try:
            api = parent.api
            return Caller(Client(), api.account, api.client_id, api.secret).post(path, body)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


def test_twenty_calls_at_once_make_one_snapshot(parent: Parent) -> None:
    answers = at_once(parent, f"/workspace/{parent.id}/snapshot", {"idempotency_key": "k"})
    assert sorted({answer.status_code for answer in answers}) == [200, 201]
    assert [answer.status_code for answer in answers].count(201) == 1
    assert len({answer.json()["snapshot"]["id"] for answer in answers}) == 1
    assert all((answer.status_code == 200) == ("Idempotent-Replay" in answer.headers) for answer in answers)
    assert (Snapshot.objects.count(), Operation.objects.filter(kind="snapshot").count()) == (1, 1)


def test_twenty_calls_at_once_make_one_set_of_forks(parent: Parent) -> None:
    answers = at_once(parent, f"/workspace/{parent.id}/fork", {"idempotency_key": "k", "count": 2})
    assert [answer.status_code for answer in answers].count(201) == 1
    ids = [[entry["workspace"]["id"] for entry in answer.json()["forks"]] for answer in answers]
    assert all(each == ids[0] for each in ids)
    assert Workspace.objects.count() == 3


def test_another_body_or_route_is_a_conflict(parent: Parent) -> None:
    other = parent.create(name="other")["id"]
    parent.keep(idempotency_key="k", name="one")
    for path, body in (
        (f"/workspace/{parent.id}/snapshot", {"name": "two"}),
        (f"/workspace/{other}/snapshot", {"name": "one"}),
        (f"/workspace/{parent.id}/fork", {"name": "one"}),
        ("/workspace", {"name": "one"}),
    ):
        answer = parent.api.post(path, {**body, "idempotency_key": "k"})
        assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_conflict")
