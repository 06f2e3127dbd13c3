"""The namespace routes: create, ensure, list, update; limits; the activity log."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.models import Plan
from accounts.scopes import Scope
from namespaces.models import Namespace, NamespaceActivity
from tests.callers import Caller, edge_header
from tests.world import assert_error

pytestmark = pytest.mark.django_db


def make(api: Caller, **fields: Any) -> dict[str, Any]:
    answer = api.post("/namespaces", {"name": "Team A", **fields})
    assert answer.status_code == 201, answer.json()
    return answer.json()["data"]


def test_a_namespace_is_created_with_every_field(api: Caller) -> None:
    limits = {"max_workspaces": 3, "max_vcpus": 1.5, "max_ram_mb": 512, "max_disk_gb": None}
    given = {
        "description": "Ours",
        "type": "staging",
        "metadata": {"a": [1]},
        "tags": ["x"],
        "resource_limits": limits,
    }
    made = make(api, **given)
    assert made["id"].startswith("ns_")
    assert (made["slug"], made["status"], made["is_default"]) == ("team-a", "active", False)
    assert {name: made[name] for name in given} == given
    assert (made["client_id"], made["last_active_at"]) == (api.account.pk, None)
    assert api.get(f"/namespaces/{made['id']}").json() == {"success": True, "data": made}
    assert api.get("/namespaces/team-a").json()["data"] == made


def test_limits_that_are_not_given_are_null(api: Caller) -> None:
    names = ("max_workspaces", "max_vcpus", "max_ram_mb", "max_disk_gb")
    assert make(api)["resource_limits"] == dict.fromkeys(names)


@pytest.mark.parametrize(
    ("name", "slug"),
    [("  Team  Bleu ", "team-bleu"), ("Équipe 1", "equipe-1"), ("a_b", "a-b"), ("-x-", "x"), ("n" * 200, "n" * 128)],
)
def test_a_slug_is_made_of_the_name(api: Caller, name: str, slug: str) -> None:
    assert make(api, name=name)["slug"] == slug


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "!!!"}, "name"),
        ({"name": "Ensure"}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"name": 5}, "name"),
        ({"name": "x", "slug": "a b"}, "slug"),
        ({"name": "x", "slug": "-a"}, "slug"),
        ({"name": "x", "slug": "ns_1"}, "slug"),
        ({"name": "x", "slug": "ensure"}, "slug"),
        ({"name": "x", "type": "other"}, "type"),
        ({"name": "x", "isDefault": "yes"}, "isDefault"),
        ({"name": "x", "tags": "a"}, "tags"),
        ({"name": "x", "tags": ["a"] * 101}, "tags"),
        ({"name": "x", "metadata": []}, "metadata"),
        ({"name": "x", "metadata": {"a": "x" * 65536}}, "metadata"),
        ({"name": "x", "resource_limits": {"max_workspaces": -1}}, "resource_limits.max_workspaces"),
        ({"name": "x", "resource_limits": {"max_workspaces": 1.5}}, "resource_limits.max_workspaces"),
        ({"name": "x", "resource_limits": {"max_vcpus": "1"}}, "resource_limits.max_vcpus"),
        ({"name": "x", "resource_limits": {"max_ram_mb": True}}, "resource_limits.max_ram_mb"),
    ],
)
def test_bad_fields_are_named_and_nothing_is_made(api: Caller, body: dict[str, Any], field: str) -> None:
    answer = api.post("/namespaces", body)
    assert_error(answer, 400, "validation_error")
    assert any(name.startswith(field) for name in answer.json()["details"])
    assert Namespace.objects.filter(account=api.account).count() == 1


def test_a_slug_is_taken_once_in_an_account(api: Caller, stranger: Caller) -> None:
    make(api)
    answer = api.post("/namespaces", {"name": "Another", "slug": "team-a"})
    assert_error(answer, 409, "namespace_exists")
    assert answer.json()["details"] == {"slug": "team-a"}
    make(stranger)


@pytest.mark.parametrize(
    ("name", "above"), [("max_workspaces", 3), ("max_vcpus", 100), ("max_ram_mb", 10**9), ("max_disk_gb", 10**6)]
)
def test_limits_above_the_plans_are_refused(new_account, name: str, above: int) -> None:
    api = new_account(plan="tiny")
    for answer in (
        api.post("/namespaces", {"name": "x", "resource_limits": {name: above}}),
        api.put("/namespaces/default", {"resource_limits": {name: above}, "name": "Changed"}),
    ):
        assert_error(answer, 400, "plan_limit_exceeded")
        assert (answer.json()["details"]["limit"], answer.json()["details"]["current"]) == (name, above)
    assert [row.name for row in Namespace.objects.filter(account=api.account)] == ["Default"]
    cap = Plan.objects.get(pk="tiny").max_workspaces
    make(api, resource_limits={"max_workspaces": cap})


def test_an_account_has_at_most_100(api: Caller) -> None:
    rows = [Namespace(account=api.account, name=str(n), slug=f"n-{n}") for n in range(98)]
    Namespace.objects.bulk_create(rows)
    make(api)
    for answer in (api.post("/namespaces", {"name": "One more"}), api.post("/namespaces/ensure", {"name": "One more"})):
        assert_error(answer, 409, "namespace_limit_exceeded")
        assert answer.json()["details"] == {"current": 100, "max": 100}
    assert api.post("/namespaces/ensure", {"slug": "team-a"}).json()["created"] is False


def test_ensure_makes_it_once_and_changes_nothing(api: Caller) -> None:
    first = api.post("/namespaces/ensure", {"name": "Team A", "description": "first"})
    second = api.post("/namespaces/ensure", {"slug": "team-a", "description": "second"})
    assert (first.status_code, first.json()["created"]) == (201, True)
    assert (second.status_code, second.json()["created"]) == (200, False)
    assert second.json()["data"] == first.json()["data"]
    assert api.post("/namespaces/ensure", {"slug": "By-Slug"}).json()["data"]["name"] == "By-Slug"
    assert_error(api.post("/namespaces/ensure", {"description": "x"}), 400, "validation_error")


def test_a_new_default_replaces_the_former_one(api: Caller) -> None:
    make(api, isDefault=True)
    assert {row.slug: row.is_default for row in Namespace.objects.filter(account=api.account)} == {
        "default": False,
        "team-a": True,
    }
    assert api.delete("/namespaces/default").status_code == 200


def test_lists_are_filtered_searched_sorted_and_paged(api: Caller) -> None:
    for name, kind in (("Beta", "testing"), ("alpha", "testing"), ("Gamma", "staging")):
        make(api, name=name, type=kind)

    def slugs(query: str) -> list[str]:
        return [row["slug"] for row in api.get(f"/namespaces?{query}").json()["data"]]

    assert slugs("") == ["gamma", "alpha", "beta", "default"]
    assert slugs("sortBy=created_at&sortOrder=ASC") == ["default", "beta", "alpha", "gamma"]
    assert slugs("type=testing") == ["alpha", "beta"]
    assert slugs("search=AM") == ["gamma"]
    assert slugs("search=%25") == []
    api.put("/namespaces/beta", {"name": "Zeta"})
    assert slugs("sortBy=updated_at")[0] == "beta"
    assert slugs("sortBy=name&sortOrder=DESC&type=testing") in (["alpha", "beta"], ["beta", "alpha"])
    page = api.get("/namespaces?limit=2&offset=1").json()
    assert ([row["slug"] for row in page["data"]], page["pagination"]) == (
        ["alpha", "beta"],
        {"total": 4, "limit": 2, "offset": 1},
    )
    for query in ("limit=0", "limit=101", "offset=-1", "status=x", "sortBy=slug", "sortOrder=asc", "type=x"):
        assert_error(api.get(f"/namespaces?{query}"), 400, "validation_error")


def test_a_list_costs_the_same_queries_for_one_and_for_many(
    api: Caller, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    api.get("/namespaces")
    with django_assert_num_queries(3):
        api.get("/namespaces")
    Namespace.objects.bulk_create([Namespace(account=api.account, name=str(n), slug=f"n-{n}") for n in range(60)])
    with django_assert_num_queries(3):
        assert len(api.get("/namespaces?limit=100").json()["data"]) == 61


def test_an_update_changes_what_is_given_and_logs_it(api: Caller) -> None:
    made = make(api, description="before", tags=["kept"])
    changes = {"description": "after", "resource_limits": {"max_workspaces": 2}}
    headers = {"User_Agent": "curl/8", "X_Edge": edge_header("203.0.113.9")}
    changed = api.put(f"/namespaces/{made['id']}", changes, **headers).json()["data"]
    assert (changed["description"], changed["tags"], changed["name"]) == ("after", ["kept"], "Team A")
    assert changed["resource_limits"]["max_workspaces"] == 2
    assert changed["updated_at"] > made["updated_at"]
    newest, first = api.get("/namespaces/team-a/activity").json()["data"]
    assert (first["action"], newest["action"]) == ("created", "updated")
    assert newest["changes"]["description"] == {"from": "before", "to": "after"}
    assert (newest["ip_address"], newest["user_agent"]) == ("203.0.113.9", "curl/8")
    assert (newest["namespace_id"], newest["user_id"]) == (made["id"], "first")
    assert isinstance(newest["id"], int)


def test_an_update_that_changes_nothing_is_not_logged(api: Caller) -> None:
    made = make(api)
    assert api.put("/namespaces/team-a", {"name": "Team A", "slug": "other"}).json()["data"] == made
    assert NamespaceActivity.objects.filter(namespace_id=made["id"]).count() == 1


def test_an_activity_entry_is_small_however_large_the_change(api: Caller) -> None:
    api.post("/namespaces", {"name": "Team A"})
    api.put("/namespaces/team-a", {"metadata": {"a": "x" * 60_000}, "description": "y" * 5000})
    api.put("/namespaces/team-a", {"metadata": {}, "type": "staging"})
    last, first = api.get("/namespaces/team-a/activity").json()["data"][:2]
    assert first["changes"]["description"] == {"from": "", "to": "(5002 characters)"}
    assert last["changes"] == {
        "metadata": {"from": "(60009 characters)", "to": {}},
        "type": {"from": "default", "to": "staging"},
    }


def test_activity_is_paged(api: Caller) -> None:
    make(api)
    for n in range(3):
        api.put("/namespaces/team-a", {"name": f"Name {n}"})
    page = api.get("/namespaces/team-a/activity?limit=2&offset=1").json()
    assert [entry["changes"]["name"]["to"] for entry in page["data"]] == ["Name 1", "Name 0"]
    assert set(page) == {"success", "data"}


def test_a_credential_of_a_namespace_sees_its_own(api: Caller, scoped) -> None:
    made = make(api)
    inside = scoped(api, Scope.NAMESPACE, namespace_id=made["id"], namespace_slug="team-a")
    assert [row["slug"] for row in inside.get("/namespaces").json()["data"]] == ["team-a"]
    assert_error(inside.get("/namespaces/default"), 404, "not_found")
    assert_error(inside.put("/namespaces/team-a", {"resource_limits": {}}), 403, "forbidden")
    assert inside.post("/namespaces/team-a/stop-workspaces").json()["stoppedWorkspaces"] == 0


def defaults_of(caller: Caller) -> list[str]:
    return [row["slug"] for row in caller.get("/namespaces").json()["data"] if row["is_default"]]


def test_a_namespace_is_made_the_default_one_again(api: Caller) -> None:
    make(api, name="other", isDefault=True)
    assert defaults_of(api) == ["other"]
    shown = api.put("/namespaces/default", {"isDefault": True}).json()["data"]
    assert (shown["is_default"], defaults_of(api)) == (True, ["default"])
    answer = api.post("/namespaces/ensure", {"slug": "other", "isDefault": True})
    assert (answer.status_code, answer.json()["created"], answer.json()["data"]["is_default"]) == (200, False, True)
    assert defaults_of(api) == ["other"]
    assert api.post("/namespaces/ensure", {"slug": "default"}).json()["data"]["is_default"] is False
    assert api.put("/namespaces/default", {"isDefault": False}).status_code == 200
    assert defaults_of(api) == ["other"]


def test_there_is_always_a_default_namespace_and_it_is_not_suspended(api: Caller) -> None:
    make(api, name="other")
    assert_error(api.put("/namespaces/default", {"isDefault": False}), 409, "conflict")
    api.post("/namespaces/other/suspend")
    assert_error(api.put("/namespaces/other", {"isDefault": True}), 409, "conflict")
    assert_error(api.post("/namespaces/ensure", {"slug": "other", "isDefault": True}), 409, "conflict")
    assert_error(api.put("/namespaces/other", {"isDefault": True, "status": "suspended"}), 409, "conflict")
    assert_error(api.put("/namespaces/other", {"isDefault": 1}), 400, "validation_error")
    assert defaults_of(api) == ["default"]
    assert api.put("/namespaces/other", {"isDefault": True, "status": "active"}).status_code == 200
    assert defaults_of(api) == ["other"]
