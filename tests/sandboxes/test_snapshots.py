"""Snapshots, restores and forks of sandboxes."""

from __future__ import annotations

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from workspaces.models import Snapshot

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_sandbox_is_kept_restored_and_forked_with_tokens_of_their_own(api: Caller, vmhost: FakeHost) -> None:
    made = api.post("/sandbox", {"name": "box"}).json()["sandbox"]
    path = f"/sandbox/{made['id']}"
    kept = api.post(f"{path}/snapshot", {"name": "one"})
    assert (kept.status_code, kept.json()["snapshot"]["status"]) == (201, "ready")
    restored = api.post(f"{path}/restore")
    assert (restored.status_code, restored.json()["sandbox"]["status"]) == (200, "active")
    body = {"count": 2, "idempotency_key": "k"}
    first, again = api.post(f"{path}/fork", body), api.post(f"{path}/fork", body)
    assert (first.status_code, again.status_code) == (201, 200)
    forks = [entry["sandbox"] for entry in first.json()["forks"]]
    assert [fork["status"] for fork in forks] == ["active", "active"]
    assert len({made["token"], *(fork["token"] for fork in forks)}) == 3
    replayed = [entry["sandbox"] for entry in again.json()["forks"]]
    assert [(fork["id"], fork["token"]) for fork in replayed] == [(fork["id"], None) for fork in forks]
    copy = api.post("/sandbox", {"name": "copy", "snapshot": "one"})
    assert (copy.status_code, copy.json()["sandbox"]["status"]) == (201, "active")
    assert api.get("/sandbox").json()["total"] == 4
    assert api.delete(path).status_code == 200
    vmhost.settle()
    assert not Snapshot.objects.exists()
