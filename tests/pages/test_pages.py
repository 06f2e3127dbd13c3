"""Pages: lists and reads, namespaces, the number of queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.scopes import Scope
from namespaces.models import Namespace
from pages.models import Page, PageEvent
from tests.callers import Caller
from tests.pages.rows import make_page
from tests.world import assert_error

pytestmark = pytest.mark.django_db


def test_a_page_shows_what_the_contract_lists(api: Caller) -> None:
    made = make_page(api.account, slug="site", release=3)
    shown = api.get("/pages/site").json()["page"]
    assert {name: shown[name] for name in shown if not name.endswith("_at")} == {
        "id": made.pk,
        "name": made.name,
        "slug": "site",
        "domain": "pages.localhost",
        "url": "http://site.pages.localhost:8000",
        "status": "active",
        "disabled_reason": None,
        "namespace": "default",
        "source_workspace_id": "ws_gone",
        "exported_path": "/site",
        "release": 3,
        "deployment": {"state": "deployed", "error": None},
        "custom_domain": None,
    }
    assert shown["created_at"].endswith("Z")


def test_a_page_in_a_domain_that_is_no_setting_any_more_is_shown(api: Caller) -> None:
    make_page(api.account, slug="site", domain="old.example")
    assert api.get("/pages/site").json()["page"]["url"] == "https://site.old.example"


def test_the_list_has_the_pages_of_the_account_newest_first(api: Caller, stranger: Caller) -> None:
    for slug in ("one", "two"):
        make_page(api.account, slug=slug)
    make_page(stranger.account, slug="three")
    assert [page["slug"] for page in api.get("/pages").json()["pages"]] == ["two", "one"]
    assert_error(api.get("/pages/three"), 404, "not_found")


def test_a_namespaces_credential_reaches_its_pages_only(api: Caller, scoped: Callable[..., Caller]) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    inside = scoped(api, Scope.NAMESPACE, namespace_id=other.pk, namespace_slug="other")
    make_page(api.account, slug="outside")
    make_page(api.account, slug="inside", namespace=other)
    assert [page["slug"] for page in inside.get("/pages").json()["pages"]] == ["inside"]
    assert_error(inside.get("/pages/outside"), 404, "not_found")


@pytest.mark.parametrize("path", ["/pages", "/pages/the-first"])
def test_reads_take_a_constant_number_of_queries(
    api: Caller, path: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    make_page(api.account, slug="the-first")
    api.get(path)  # records the use of the credential
    with django_assert_num_queries(2):
        api.get(path)
    for _ in range(20):
        make_page(api.account)
    with django_assert_num_queries(2):
        api.get(path)


@pytest.mark.parametrize("query", ["", "?deleteWorkspaces=true"])
def test_pages_of_a_deleted_namespace_are_moved_to_the_default_one(api: Caller, query: str) -> None:
    other: Any = Namespace.objects.create(account=api.account, name="Other", slug="other")
    page = make_page(api.account, namespace=other)
    assert api.delete(f"/namespaces/other{query}").status_code == 200
    assert Page.objects.get().namespace.slug == "default"
    assert [(event.action, event.page_id) for event in PageEvent.objects.all()] == [("moved", page.pk)]
