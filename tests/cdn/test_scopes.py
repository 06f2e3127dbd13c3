"""What a credential of a namespace reaches, whatever its requests name; files without a namespace; other accounts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accounts.scopes import Scope
from cdn.models import File
from namespaces.models import Namespace
from tests.callers import Caller
from tests.cdn.rows import make_file
from tests.world import assert_error

pytestmark = pytest.mark.django_db
NEW = {"filename": "a", "size": 1, "contentType": ""}


@pytest.fixture
def other(api: Caller) -> Namespace:
    return Namespace.objects.create(account=api.account, name="Other", slug="other")


@pytest.fixture
def inside(api: Caller, other: Namespace, scoped: Callable[..., Caller]) -> Caller:
    return scoped(api, Scope.NAMESPACE, namespace_id=other.pk, namespace_slug="other")


def ids(caller: Caller, query: str = "") -> set[str]:
    return {each["id"] for each in caller.get(f"/cdn/files{query}").json()["data"]["files"]}


def test_a_namespaces_credential_reads_its_own_files_only(api: Caller, inside: Caller, other: Namespace) -> None:
    own, personal = make_file(api.account, other), make_file(api.account)
    outside = make_file(api.account, Namespace.objects.get(account=api.account, is_default=True))
    assert ids(inside) == ids(inside, "?namespace=other") == {own.pk}
    for path in ("files", "usage", "tags", "stats", "trash"):
        for query in ("?namespace=default", "?scope=personal", "?namespace=nothing"):
            method = "DELETE" if path == "trash" else "GET"
            assert_error(inside.send(method, f"/cdn/{path}{query}"), 403, "forbidden")
    assert_error(inside.get("/cdn/policy?namespace=default"), 403, "forbidden")
    assert inside.get("/cdn/policy").json()["data"]["namespace"] == "other"
    assert inside.get("/cdn/usage").json()["data"]["active"]["files"] == 1
    for file in (personal, outside):
        assert_error(inside.get(f"/cdn/files/{file.pk}"), 404, "not_found")
        assert_error(inside.delete(f"/cdn/files/{file.pk}"), 404, "not_found")
        assert_error(inside.post(f"/cdn/files/{file.pk}/restore"), 404, "not_found")
    assert [each["namespace"] for each in inside.get("/cdn/namespaces").json()["data"]["namespaces"]] == ["other"]


def test_a_namespaces_credential_empties_its_own_trash_only(api: Caller, inside: Caller, other: Namespace) -> None:
    for namespace in (other, None):
        api.delete(f"/cdn/files/{make_file(api.account, namespace).pk}")
    assert inside.delete("/cdn/trash").json()["deleted"] == 1
    assert ids(api, "?status=trashed&scope=personal") == ids(api, "?status=trashed") != set()


@pytest.mark.parametrize(
    ("query", "empty"), [("namespace=", "namespace"), ("scope=", "scope"), ("namespace=default&scope=", "scope")]
)
def test_a_parameter_without_a_value_is_not_the_whole_account(api: Caller, query: str, empty: str) -> None:
    """As of a program whose variable is empty."""
    file = make_file(api.account)
    api.delete(f"/cdn/files/{file.pk}")
    for method, path in (("DELETE", "trash"), ("GET", "files"), ("GET", "usage")):
        refused = api.send(method, f"/cdn/{path}?{query}")
        assert_error(refused, 400, "validation_error")
        assert set(refused.json()["details"]) == {empty}
    assert_error(api.get("/cdn/policy?namespace="), 400, "validation_error")
    assert ids(api, "?status=trashed") == {file.pk}


def test_uploads_of_a_namespaces_credential_go_into_it(inside: Caller) -> None:
    made = inside.post("/cdn/token", NEW).json()
    assert inside.get(f"/cdn/files/{made['fileId']}").json()["file"]["namespace"] == "other"
    assert_error(inside.post("/cdn/token", {**NEW, "namespace": "default"}), 403, "forbidden")


def test_an_account_lists_all_or_a_part(api: Caller, other: Namespace) -> None:
    own, personal = make_file(api.account, other), make_file(api.account)
    assert ids(api) == {own.pk, personal.pk}
    assert ids(api, "?namespace=other") == {own.pk}
    assert ids(api, "?scope=personal") == {personal.pk}
    assert_error(api.get("/cdn/files?scope=personal&namespace=other"), 400, "validation_error")
    assert_error(api.get("/cdn/files?namespace=nothing"), 404, "not_found")
    assert_error(api.get("/cdn/files?scope=everything"), 400, "validation_error")


def test_limits_are_changed_with_account_scope_only(inside: Caller) -> None:
    assert inside.get("/cdn/quota-defaults").status_code == 200
    assert_error(inside.put("/cdn/quota-defaults", {"cdn_max_bytes": 1}), 403, "forbidden")
    assert_error(inside.put("/cdn/namespaces/quota", {"namespace": "other", "cdn_max_bytes": 1}), 403, "forbidden")


def test_a_stranger_sees_nothing(api: Caller, stranger: Caller, other: Namespace) -> None:
    file = make_file(api.account, other)
    assert ids(stranger) == set()
    for answer in (
        stranger.get(f"/cdn/files/{file.pk}"),
        stranger.delete(f"/cdn/files/{file.pk}"),
        stranger.get("/cdn/usage?namespace=other"),
        stranger.post("/cdn/token", {**NEW, "namespace": "other"}),
        stranger.put("/cdn/namespaces/quota", {"namespace": "other", "cdn_max_bytes": 0}),
    ):
        assert_error(answer, 404, "not_found")
    assert stranger.delete("/cdn/trash").json()["deleted"] == 0
    assert File.objects.get(pk=file.pk).status == "active"


def test_billing_credentials_read_usage(api: Caller, scoped: Callable[..., Caller]) -> None:
    billing = scoped(api, Scope.BILLING)
    assert billing.get("/cdn/usage").status_code == 200
    assert_error(billing.get("/cdn/files"), 403, "forbidden")
