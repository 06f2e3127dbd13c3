"""The credit routes: quotas, resets, defaults, lists and reports."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.scopes import Scope
from credits import ledger
from credits.entries import Purpose
from credits.models import Balance, QuotaDefault, Service, Spending
from namespaces.models import Namespace
from tests.between_queries import done_before
from tests.callers import Caller
from tests.world import assert_error

pytestmark = pytest.mark.django_db

NAMED = {"namespace": "default", "service": "sandbox"}


@pytest.fixture
def default(api: Caller) -> Namespace:
    return Namespace.objects.get(account=api.account)


def charge(namespace: Namespace, amount: str, service: str = "sandbox", **purpose: Any) -> None:
    ledger.credits_charge(
        namespace=namespace, service=Service(service), amount=Decimal(amount), purpose=Purpose(**purpose)
    )


def test_a_quota_is_set_and_shown(api: Caller, default: Namespace) -> None:
    charge(default, "0.5")
    body = {**NAMED, "quotaLimit": 100.12345678, "overdraft": 5, "onOverdraftAction": "stop_workspaces"}
    answer = api.post("/credits/namespace-quota", {**body, "notificationThresholds": [90, 50.5]})
    assert answer.json() == {
        "success": True,
        "data": {
            "namespace": "default",
            "service": "sandbox",
            "quota_limit": 100.12345678,
            "quota_used": 0.5,
            "overdraft": 5,
            "on_overdraft_action": "stop_workspaces",
            "notification_thresholds": [50.5, 90],
            "last_threshold_fired": None,
        },
    }
    assert Balance.objects.get().quota_limit == Decimal("100.12345678")


@pytest.mark.parametrize(("given", "stored"), [({}, [80, 95]), (None, [80, 95]), ([], []), ([100], [100])])
def test_thresholds_have_defaults_and_can_be_switched_off(api: Caller, given: Any, stored: list[float]) -> None:
    fields = {} if given == {} else {"notificationThresholds": given}
    data = api.post("/credits/namespace-quota", {**NAMED, "quotaLimit": 1, **fields}).json()["data"]
    assert (data["notification_thresholds"], data["overdraft"], data["on_overdraft_action"]) == (stored, 0, "block")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"quotaLimit": 10_000_000.00000001}, "quotaLimit"),
        ({"quotaLimit": 10_000_001}, "quotaLimit"),
        ({"quotaLimit": -1}, "quotaLimit"),
        ({"quotaLimit": "5"}, "quotaLimit"),
        ({"quotaLimit": True}, "quotaLimit"),
        ({"quotaLimit": None}, "quotaLimit"),
        ({}, "quotaLimit"),
        ({"quotaLimit": 1, "overdraft": -0.1}, "overdraft"),
        *(({"quotaLimit": 1, "service": name}, "service") for name in ("", "AI", "a b", "a\n", "a" * 65, "ä", 5, None)),
        ({"quotaLimit": 1, "namespace": 5}, "namespace"),
        ({"quotaLimit": 1, "onOverdraftAction": "explode"}, "onOverdraftAction"),
        ({"quotaLimit": 1, "notificationThresholds": [0]}, "notificationThresholds"),
        ({"quotaLimit": 1, "notificationThresholds": [1001]}, "notificationThresholds"),
        ({"quotaLimit": 1, "notificationThresholds": ["80"]}, "notificationThresholds"),
        ({"quotaLimit": 1, "notificationThresholds": 80}, "notificationThresholds"),
    ],
)
def test_bad_quotas_are_refused_by_the_name_of_the_field(api: Caller, fields: dict[str, Any], named: str) -> None:
    answer = api.post("/credits/namespace-quota", {**NAMED, **fields})
    assert_error(answer, 400, "validation_error")
    assert any(name.startswith(named) for name in answer.json()["details"])
    assert not Balance.objects.exists()


def test_of_too_many_thresholds_none_is_looked_at(api: Caller) -> None:
    answer = api.post("/credits/namespace-quota", {**NAMED, "quotaLimit": 1, "notificationThresholds": [0] * 100_000})
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {"notificationThresholds"}


@pytest.mark.parametrize("path", ["/credits/namespace-quota", "/credits/reset-quota"])
def test_an_unknown_namespace_is_404(api: Caller, stranger: Caller, path: str) -> None:
    Namespace.objects.create(account=stranger.account, name="Theirs", slug="theirs")
    for slug in ("none", "theirs"):
        answer = api.post(path, {"namespace": slug, "service": "ai", "quotaLimit": 1})
        assert_error(answer, 404, "not_found")
    assert not Balance.objects.exists()


def test_nan_and_infinity_are_no_json(api: Caller) -> None:
    for number in ("NaN", "Infinity", "1e999"):
        body = f'{{"namespace": "default", "service": "ai", "quotaLimit": {number}}}'
        assert_error(api.post("/credits/namespace-quota", body), 400, "invalid_json")


def test_a_reset_returns_to_zero_and_rearms(api: Caller, default: Namespace) -> None:
    api.post("/credits/namespace-quota", {**NAMED, "quotaLimit": 10})
    charge(default, "9")
    for _ in range(2):
        data = api.post("/credits/reset-quota", NAMED).json()["data"]
        assert (data["quota_used"], data["quota_limit"], data["last_threshold_fired"]) == (0, 10, None)


def test_a_reset_without_a_quota_is_404(api: Caller, default: Namespace) -> None:
    charge(default, "9")
    for service in ("sandbox", "ai", "none"):
        assert_error(api.post("/credits/reset-quota", NAMED | {"service": service}), 404, "not_found")
    assert Balance.objects.get().used == 9


@pytest.mark.parametrize("name", ["a", "my-own_service-2", "s" * 64])
def test_quotas_and_defaults_take_any_name_of_a_service(api: Caller, default: Namespace, name: str) -> None:
    named = {"service": name}
    made = api.post("/credits/namespace-quota", NAMED | named | {"quotaLimit": 5}).json()["data"]
    assert (made["service"], made["quota_limit"], made["quota_used"]) == (name, 5, 0)
    assert api.post("/credits/reset-quota", NAMED | named).json()["data"] == made
    assert api.get("/credits/namespaces/default").json()["data"]["quotas"] == [made]
    assert api.get(f"/namespaces/default/usage?service={name}").json()["data"]["quotas"] == [made]
    found = api.post("/credits/defaults", {"level": "namespace", "quotaLimit": 7, **named}).json()["data"]
    assert api.get(f"/credits/defaults?level=namespace&service={name}").json()["data"] == found
    assert api.post("/credits/defaults/toggle-auto-apply", {"level": "namespace", **named}).status_code == 200
    assert api.delete(f"/credits/defaults?level=namespace&service={name}").status_code == 200


def test_the_number_of_services_is_limited(api: Caller, default: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ledger", "defaults"):
        monkeypatch.setattr(f"credits.{module}.MAX_SERVICES", 2)
    for path, body in (("namespace-quota", {"namespace": "default"}), ("defaults", {"level": "namespace"})):
        sent = [api.post(f"/credits/{path}", {**body, "service": each, "quotaLimit": 1}) for each in "abcba"]
        assert [answer.status_code for answer in sent] == [200, 200, 409, 200, 200]
        assert_error(sent[2], 409, "service_limit_exceeded")
        assert sent[2].json()["details"]["current"] == 2


def test_a_reset_lifts_a_suspension_that_no_quota_explains(api: Caller, default: Namespace) -> None:
    api.post("/credits/namespace-quota", {**NAMED, "quotaLimit": 10})
    Namespace.objects.filter(pk=default.pk).update(suspended_by_quota=True, status="suspended")
    assert api.post("/credits/reset-quota", {"namespace": "default", "service": "sandbox"}).status_code == 200
    default.refresh_from_db()
    assert (default.status, default.suspended_by_quota) == ("active", False)


def test_namespaces_are_listed_with_their_quotas(api: Caller, default: Namespace) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other", status="suspended")
    for slug, service, limit in (("default", "sandbox", 10), ("default", "ai", 5), ("other", "ai", 1)):
        api.post("/credits/namespace-quota", {"namespace": slug, "service": service, "quotaLimit": limit})
    charge(default, "2")
    charge(other, "0.25", "cdn")
    body = api.get("/credits/namespaces").json()
    assert [(row["namespace"], row["status"]) for row in body["data"]] == [
        ("other", "suspended"),
        ("default", "active"),
    ]
    assert [quota["service"] for quota in body["data"][1]["quotas"]] == ["ai", "sandbox"]
    assert body["data"][1]["quotas"][1]["quota_used"] == 2
    assert body["aggregations"] == {"total_limit": 16, "total_used": 2}
    assert body["pagination"] == {"total": 2, "limit": 50, "offset": 0}
    only = api.get("/credits/namespaces?status=active&limit=1").json()
    assert ([row["namespace"] for row in only["data"]], only["aggregations"]["total_limit"]) == (["default"], 15)


def test_the_list_costs_the_same_queries_for_one_and_for_many(
    api: Caller, default: Namespace, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    api.get("/credits/namespaces")
    api.post("/credits/namespace-quota", {**NAMED, "quotaLimit": 10})
    with django_assert_num_queries(5):
        api.get("/credits/namespaces")
    rows = Namespace.objects.bulk_create(
        [Namespace(account=api.account, name=str(n), slug=f"n-{n}") for n in range(40)]
    )
    Balance.objects.bulk_create(
        [
            Balance(account_id=api.account.pk, namespace_id=row.pk, service=service, quota_limit=Decimal(1))
            for row in rows
            for service in Service
        ]
    )
    with django_assert_num_queries(5):
        assert len(api.get("/credits/namespaces?limit=100").json()["data"]) == 41


def test_one_namespace_shows_what_it_spent(api: Caller, default: Namespace) -> None:
    charge(default, "3", description="CPU", workspace_id="ws_1")
    charge(default, "1", "ai")
    ledger.credits_refund(
        namespace=default, service=Service.AI, amount=Decimal("0.5"), purpose=Purpose(description="back")
    )
    Spending.objects.filter(balance__service="ai").update(day=Spending.objects.first().day - timedelta(days=40))
    data = api.get("/credits/namespaces/default").json()["data"]
    assert data["usage"] == {"total_requests": 1, "total_credits": 3}
    assert data["services"] == [{"service": "sandbox", "credits": 3, "requests": 1, "percent": 100}]
    assert [row["credits"] for row in data["timeline"]] == [3]
    newest, *_, first = data["transactions"]
    assert (newest["type"], newest["amount"], newest["balance_after"]) == ("refund", -0.5, 0.5)
    assert (first["workspace_id"], first["description"], first["service"]) == ("ws_1", "CPU", "sandbox")
    assert newest["workspace_id"] is None
    assert newest["at"].endswith("Z")
    longer = api.get("/credits/namespaces/default?days=90").json()["data"]
    assert longer["usage"]["total_credits"] == 3.5
    assert [row["percent"] for row in longer["services"]] == [14.29, 85.71]
    for days in (0, 91, "x"):
        assert_error(api.get(f"/credits/namespaces/default?days={days}"), 400, "validation_error")


def test_usage_of_a_namespace_by_day_and_service(api: Caller, default: Namespace) -> None:
    api.post("/credits/namespace-quota", {**NAMED, "quotaLimit": 10})
    for amount in ("1", "2"):
        charge(default, amount)
    charge(default, "4", "cdn")
    data = api.get("/namespaces/default/usage").json()["data"]
    assert [(row["service"], row["total_requests"], row["total_credits"]) for row in data["usage"]] == [
        ("cdn", 1, 4),
        ("sandbox", 2, 3),
    ]
    assert data["summary"] == [
        {"service": "cdn", "total_requests": 1, "total_credits": 4},
        {"service": "sandbox", "total_requests": 2, "total_credits": 3},
    ]
    assert [quota["service"] for quota in data["quotas"]] == ["sandbox"]
    assert len(api.get("/namespaces/default/usage?service=cdn").json()["data"]["usage"]) == 1


def test_defaults_are_set_toggled_listed_and_deleted(api: Caller, stranger: Caller, default: Namespace) -> None:
    named = {"level": "namespace", "service": "ai"}
    made = api.post("/credits/defaults", {**named, "quotaLimit": 7}).json()["data"]
    assert (made["quota_limit"], made["auto_apply"], made["notification_thresholds"]) == (7, True, [80, 95])
    assert api.get("/credits/defaults?level=namespace&service=ai").json()["data"] == made
    assert api.get("/credits/defaults/all?level=namespace").json()["data"] == [made]
    assert stranger.get("/credits/defaults/all").json()["data"] == []
    toggled = api.post("/credits/defaults/toggle-auto-apply", named).json()["data"]
    assert toggled["auto_apply"] is False
    charge(default, "1", "ai")
    assert Balance.objects.get().quota_limit is None
    assert api.delete("/credits/defaults", named).status_code == 200
    assert_error(api.delete("/credits/defaults?level=namespace&service=ai"), 404, "not_found")
    assert_error(api.get("/credits/defaults?level=namespace&service=ai"), 404, "not_found")
    assert_error(api.get("/credits/defaults?service=ai"), 400, "validation_error")


def test_a_default_that_is_deleted_while_it_is_toggled_is_not_found(api: Caller) -> None:
    """A deletion does not wait for the account, which the other request has locked."""
    named = {"level": "namespace", "service": "ai"}
    assert api.post("/credits/defaults", {**named, "quotaLimit": 5}).status_code == 200
    with done_before('UPDATE "credits_quotadefault"', QuotaDefault.objects.all().delete):
        assert_error(api.post("/credits/defaults/toggle-auto-apply", named), 404, "not_found")


def test_a_quota_inherits_overdraft_action_and_thresholds_of_its_default(api: Caller, default: Namespace) -> None:
    body = {
        "level": "namespace",
        "service": "ai",
        "quotaLimit": 7,
        "overdraft": 2,
        "onOverdraftAction": "stop_workspaces",
        "notificationThresholds": [90, 50],
    }
    made = api.post("/credits/defaults", body).json()["data"]
    assert (made["overdraft"], made["on_overdraft_action"]) == (2, "stop_workspaces")
    charge(default, "1", "ai")
    (quota,) = api.get("/credits/namespaces/default").json()["data"]["quotas"]
    inherited = ("quota_limit", "overdraft", "on_overdraft_action", "notification_thresholds")
    assert [quota[name] for name in inherited] == [7, 2, "stop_workspaces", [50, 90]]
    assert_error(api.post("/credits/defaults", {**body, "overdraft": -1}), 400, "validation_error")


def test_a_credential_of_a_namespace_reads_its_own_and_sets_none(api: Caller, scoped: Callable[..., Caller]) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    inside = scoped(api, Scope.NAMESPACE, namespace_id=other.pk, namespace_slug="other")
    assert [row["namespace"] for row in inside.get("/credits/namespaces").json()["data"]] == ["other"]
    assert_error(inside.get("/credits/namespaces/default"), 404, "not_found")
    answer = inside.post("/credits/namespace-quota", {"namespace": "other", "service": "ai", "quotaLimit": 1})
    assert_error(answer, 403, "forbidden")
    billing = scoped(api, Scope.BILLING)
    answer = billing.post("/credits/namespace-quota", {"namespace": "other", "service": "ai", "quotaLimit": 1})
    assert answer.status_code == 200
