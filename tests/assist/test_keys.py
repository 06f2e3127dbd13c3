"""API keys: created, listed, deleted, by whom; what is stored of them; staff."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.scopes import Scope
from assist import services
from assist.models import ApiKey, KeyEvent
from assist.selectors import key_of_secret, paying_namespace
from common.errors import NotFound
from namespaces.models import Namespace
from tests.callers import Caller
from tests.staff.pages import confirm
from tests.world import assert_error

pytestmark = pytest.mark.django_db


def test_a_key_and_its_webhook_secret_are_shown_once_and_stored_as_a_hash_and_encrypted(api: Caller) -> None:
    made = api.post("/api-keys", {"name": "ci"})
    assert made.status_code == 201
    body = made.json()
    assert set(body) == {"success", "api_key", "key", "webhook_secret"}
    fields = {"id", "name", "key_prefix", "namespace", "created_at", "last_used_at"}
    assert set(body["api_key"]) == fields
    assert body["key"].startswith("key_")
    assert body["key"].startswith(body["api_key"]["key_prefix"])
    assert body["webhook_secret"].startswith("whsec_")
    assert (body["api_key"]["namespace"], body["api_key"]["last_used_at"]) == (None, None)
    listed = api.get("/api-keys")
    assert [set(row) for row in listed.json()["api_keys"]] == [fields]
    assert (listed.json()["total"], body["key"] in listed.content.decode()) == (1, False)
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM assist_apikey")
        stored = str(cursor.fetchall())
    assert body["key"] not in stored
    assert body["webhook_secret"] not in stored


def test_a_key_is_found_by_its_secret_alone(api: Caller) -> None:
    made = services.api_key_create(account=api.account, name="", namespace=None, actor="test")
    found = key_of_secret(made.key)
    assert found is not None
    assert (found.pk, paying_namespace(found).is_default) == (made.api_key.pk, True)
    assert key_of_secret(made.key[:-1]) is None
    assert key_of_secret(made.api_key.key_hash) is None


def test_a_deleted_key_is_gone_and_its_audit_entries_stay(api: Caller) -> None:
    made = api.post("/api-keys", {}).json()
    path = f"/api-keys/{made['api_key']['id']}"
    assert api.delete(path).status_code == 200
    assert_error(api.delete(path), 404, "not_found")
    assert key_of_secret(made["key"]) is None
    assert list(KeyEvent.objects.values_list("action", flat=True)) == ["deleted", "created"]


def test_an_account_has_at_most_a_hundred_keys(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_KEYS", 2)
    assert [api.post("/api-keys", {}).status_code for _ in range(2)] == [201, 201]
    refused = api.post("/api-keys", {})
    assert_error(refused, 409, "conflict")
    assert refused.json()["details"] == {"current": 2, "max": 2}


def test_a_namespaces_credential_has_the_keys_of_its_namespace_alone(
    api: Caller, scoped: Callable[..., Caller]
) -> None:
    space = Namespace.objects.create(account=api.account, name="Other", slug="other")
    inside = scoped(api, Scope.NAMESPACE, namespace_id=space.pk, namespace_slug="other")
    outer = api.post("/api-keys", {}).json()["api_key"]
    made = inside.post("/api-keys", {"name": "inner"}).json()["api_key"]
    assert made["namespace"] == "other"
    assert [row["id"] for row in inside.get("/api-keys").json()["api_keys"]] == [made["id"]]
    assert_error(inside.delete(f"/api-keys/{outer['id']}"), 404, "not_found")
    assert_error(inside.post("/api-keys", {"namespace": "default"}), 403, "forbidden")
    assert_error(api.post("/api-keys", {"namespace": "nowhere"}), 404, "not_found")


def test_a_key_ends_with_its_namespace(api: Caller) -> None:
    space = Namespace.objects.create(account=api.account, name="Other", slug="other")
    made = services.api_key_create(account=api.account, name="", namespace=space, actor="test")
    space.delete()
    assert key_of_secret(made.key) is None


def test_a_list_of_many_keys_takes_as_many_queries_as_one_of_two(api: Caller) -> None:
    space = Namespace.objects.create(account=api.account, name="Other", slug="other")

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get("/api-keys?limit=100").status_code == 200
        return len(captured)

    def make(number: int) -> None:
        for _ in range(number):
            services.api_key_create(account=api.account, name="", namespace=space, actor="test")

    make(2)
    queries()  # the first one notes that the credential is used
    few = queries()
    make(20)
    assert queries() == few


def test_a_key_that_was_deleted_is_not_renamed(api: Caller) -> None:
    made = services.api_key_create(account=api.account, name="old", namespace=None, actor="staff").api_key
    services.api_key_rename(api_key=made, name="old", actor="staff")
    services.api_key_delete(api_key=made, actor="staff")
    with pytest.raises(NotFound):
        services.api_key_rename(api_key=made, name="new", actor="staff")


def test_staff_make_and_delete_keys_and_see_no_secret(staff: Client, api: Caller) -> None:
    page = staff.post("/admin/assist/apikey/add/", {"account": api.account.pk, "name": "by staff"}, follow=True)
    made = ApiKey.objects.get()
    shown = page.content.decode()
    assert f"Key {made.key_prefix}" in shown
    again = staff.get(f"/admin/assist/apikey/{made.pk}/change/").content.decode()
    assert "whsec_" not in again
    assert made.key_hash not in again
    assert (
        staff.post(f"/admin/assist/apikey/{made.pk}/change/", {"name": "renamed", "reason": "why"}).status_code == 302
    )
    assert ApiKey.objects.get().name == "renamed"
    confirm(staff, "assist/apikey", "revoke", made.pk, reason="why")
    assert not ApiKey.objects.exists()
    assert list(KeyEvent.objects.values_list("action", flat=True)) == ["deleted", "renamed", "created"]
