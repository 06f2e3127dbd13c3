"""`/workspace/:id/metadata` (specification, Metadata; wire contract, section 3)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from accounts.scopes import Scope
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_workspace
from tests.workspaces.test_shapes import assert_fits
from tests.workspaces.workspace_states import make
from workspaces.metadata import MAX_BYTES, MetadataResponse
from workspaces.models import Workspace
from workspaces.states import Status

VALUES = {
    "null": None, "true": True, "int": -7, "big": 2**63, "float": 0.125, "text": "Grüße 🙂\n\"'", "": "no key",
    "list": [1, None, {"a": []}], "object": {"a": {"b": None}}, "a.b[0]": 1, "__proto__": {},
}  # fmt: skip


@pytest.fixture
def path(api: Caller) -> str:
    return f"/workspace/{make_workspace(api.account, slug='the-box').pk}/metadata"


def put(api: Caller, path: str, value: Any, method: str = "PUT") -> Any:
    return api.send(method, path, {"metadata": value})


@pytest.mark.django_db
def test_it_is_empty_at_first(api: Caller, path: str) -> None:
    body = api.get(path).json()
    assert body == {"success": True, "metadata": {}}
    assert_fits(body, MetadataResponse())


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_values_of_every_type_come_back_as_given(api: Caller, path: str, method: str) -> None:
    answer = put(api, path, VALUES, method)
    assert (answer.status_code, answer.json()) == (200, {"success": True, "metadata": VALUES})
    assert api.get("/workspace/the-box/metadata").json()["metadata"] == VALUES


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_both_methods_merge_at_the_top(api: Caller, path: str, method: str) -> None:
    put(api, path, {"kept": 1, "changed": {"a": 1, "b": 2}, "emptied": 5})
    answer = put(api, path, {"changed": {"c": 3}, "emptied": None, "new": []}, method)
    assert answer.json()["metadata"] == {"kept": 1, "changed": {"c": 3}, "emptied": None, "new": []}
    assert put(api, path, {}, method).json()["metadata"] == answer.json()["metadata"]
    assert api.get(path).json()["metadata"] == answer.json()["metadata"]


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize(
    "body", [{}, {"metadata": None}, {"metadata": []}, {"metadata": "x"}, {"metadata": 5}, {"a": 1}]
)
def test_what_is_no_object_is_refused(api: Caller, path: str, method: str, body: Any) -> None:
    put(api, path, {"kept": 1})
    answer = api.send(method, path, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert list(answer.json()["details"]) == ["metadata"]
    assert api.get(path).json()["metadata"] == {"kept": 1}


@pytest.mark.django_db
def test_sixty_four_kib_in_the_end_and_no_more(api: Caller, path: str) -> None:
    frame = len(json.dumps({"a": "", "b": ""}, separators=(",", ":")))
    half = "ü" * 1000  # two bytes each
    assert put(api, path, {"a": half}).status_code == 200
    rest = "x" * (MAX_BYTES - frame - 2000)
    answer = put(api, path, {"b": rest + "x"})
    assert (answer.status_code, list(answer.json()["details"])) == (400, ["metadata"])
    assert api.get(path).json()["metadata"] == {"a": half}
    assert put(api, path, {"b": rest}).status_code == 200
    assert put(api, path, {"c": 1}).status_code == 400
    assert put(api, path, {"b": 1, "c": 1}).status_code == 200


@pytest.mark.django_db
def test_nesting_has_a_limit(api: Caller, path: str) -> None:
    def nested(levels: int) -> str:
        return '{"metadata": {"a": ' + "[" * levels + "]" * levels + "}}"

    assert api.put(path, nested(99)).status_code == 200
    for levels in (101, 300, 800):
        answer = api.put(path, nested(levels))
        assert (answer.status_code, list(answer.json()["details"])) == (400, ["metadata"]), levels
    assert api.get(path).status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("status", [Status.STOPPED, Status.SLEEPING, Status.FAILED, Status.DESTROYED, Status.CREATING])
def test_it_needs_no_machine(api: Caller, status: Status) -> None:
    row = make_workspace(api.account, status=status)
    assert put(api, f"/workspace/{row.pk}/metadata", {"a": 1}).json()["metadata"] == {"a": 1}
    row.refresh_from_db()
    assert (row.status, row.metadata) == (status, {"a": 1})


@pytest.mark.django_db
def test_a_pinned_credential_changes_its_own(api: Caller, path: str, scoped: Any) -> None:
    row, beside = Workspace.objects.get(), make_workspace(api.account)
    binding = {"namespace_id": row.namespace_id, "namespace_slug": "default", "workspace_id": row.pk}
    inside = scoped(api, Scope.WORKSPACE, **binding)
    assert put(inside, path, {"a": 1}).status_code == 200
    assert put(inside, f"/workspace/{beside.pk}/metadata", {"a": 1}).status_code == 404
    beside.refresh_from_db()
    assert beside.metadata == {}


@pytest.mark.django_db
def test_a_workspace_that_another_request_removed_is_404(
    api: Caller, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workspaces import selectors

    found = selectors.get_workspace

    def get_then_lose(*args: Any, **kwargs: Any) -> Workspace:
        workspace = found(*args, **kwargs)
        Workspace.objects.filter(pk=workspace.pk).delete()
        return workspace

    monkeypatch.setattr(selectors, "get_workspace", get_then_lose)
    answer = put(api, path, {"a": 1})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.django_db(transaction=True)
def test_merges_at_the_same_moment_lose_nothing(api: Caller, path: str) -> None:
    def one(number: int) -> int:
        try:
            status: int = put(api, path, {f"key-{number}": number}, "PUT" if number % 2 else "PATCH").status_code
            return status
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(one, range(40))) == {200}
    assert api.get(path).json()["metadata"] == {f"key-{number}": number for number in range(40)}


@pytest.mark.django_db(transaction=True)
def test_a_reinstall_keeps_it(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)
    put(api, f"/workspace/{made}/metadata", {"a": None, "b": [1]})
    assert api.post(f"/workspace/{made}/reinstall").status_code == 200
    assert api.get(f"/workspace/{made}/metadata").json()["metadata"] == {"a": None, "b": [1]}
