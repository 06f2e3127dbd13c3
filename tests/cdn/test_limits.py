"""The routes of limits: what is left out, null, zero; where values come from; lists of namespaces; audit entries."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from cdn.models import FileEvent
from namespaces.models import Namespace
from tests.callers import Caller
from tests.cdn.rows import make_file, make_permit
from tests.world import assert_error

pytestmark = pytest.mark.django_db


def set_quota(api: Caller, **fields: Any) -> dict[str, Any]:
    answer = api.put("/cdn/namespaces/quota", {"namespace": "default", **fields})
    assert answer.status_code == 200, answer.json()
    data: dict[str, Any] = answer.json()["data"]
    return data


def test_what_is_left_out_stays(api: Caller) -> None:
    set_quota(api, cdn_max_bytes=5, cdn_monthly_bytes=6, policy={"maxFiles": 1, "maxWidth": 2})
    assert set_quota(api, policy={"maxWidth": 3}) == {
        "namespace": "default",
        "cdn_max_bytes": 5,
        "cdn_monthly_bytes": 6,
        "policy": {"maxFiles": 1, "maxWidth": 3},
    }
    assert set_quota(api)["cdn_max_bytes"] == 5


def test_null_inherits_and_null_for_the_policy_removes_it(api: Caller) -> None:
    set_quota(api, cdn_max_bytes=5, policy={"maxFiles": 1, "maxWidth": 2})
    assert set_quota(api, cdn_max_bytes=None, policy={"maxFiles": None})["policy"] == {"maxWidth": 2}
    assert set_quota(api, policy=None)["policy"] is None
    listed = api.get("/cdn/namespaces").json()["data"]["namespaces"]
    assert (listed[0]["has_override"], listed[0]["override"]) == (False, None)


def test_the_template_is_what_namespaces_inherit(api: Caller) -> None:
    answer = api.put("/cdn/quota-defaults", {"cdn_max_bytes": 0, "policy": {"allowedKinds": ["image", "image"]}})
    expected = {"cdn_max_bytes": 0, "cdn_monthly_bytes": None, "policy": {"allowedKinds": ["image"]}}
    assert answer.json()["data"] == expected
    assert api.get("/cdn/quota-defaults").json()["data"] == expected
    body = {"filename": "a", "size": 1, "contentType": "image/png"}
    refused = api.post("/cdn/token", {**body, "namespace": "default"})
    assert_error(refused, 402, "cdn_quota_exceeded")
    assert api.post("/cdn/token", body).status_code == 201
    assert_error(api.post("/cdn/token", {**body, "namespace": "default", "contentType": "a/b"}), 400,
                 "cdn_policy_violation")  # fmt: skip


def test_the_policy_says_where_each_value_comes_from(api: Caller) -> None:
    api.put("/cdn/quota-defaults", {"cdn_monthly_bytes": 10, "policy": {"maxVariants": 1000}})
    set_quota(api, cdn_max_bytes=7)
    data = api.get("/cdn/policy?namespace=default").json()["data"]
    effective = data["effective"]
    assert (data["namespace"], effective["cdn_max_bytes"], effective["cdn_monthly_bytes"]) == ("default", 7, 10)
    assert effective["policy"]["maxVariants"] == 16
    sources = {name: effective["sources"][name] for name in ("cdn_max_bytes", "cdn_monthly_bytes", "maxVariants")}
    assert sources == {"cdn_max_bytes": "namespace", "cdn_monthly_bytes": "account", "maxVariants": "plan"}
    assert effective["clamped"] == ["maxVariants"]
    assert data["override"] == {"cdn_max_bytes": 7, "cdn_monthly_bytes": None, "policy": None}
    assert data["account"]["policy"] == {"maxVariants": 1000}
    assert data["plan"]["code"] == api.account.plan_id
    whole = api.get("/cdn/policy").json()["data"]
    assert (whole["namespace"], whole["override"], whole["effective"]["policy"]["maxVariants"]) == (None, None, 16)


def test_namespaces_are_listed_with_what_they_use(api: Caller) -> None:
    other = Namespace.objects.create(account=api.account, name="Team of one", slug="team")
    make_file(api.account, other, size=30)
    make_permit(api.account, other, size=5)
    set_quota(api, cdn_max_bytes=7)
    data = api.get("/cdn/namespaces").json()["data"]
    assert data["pagination"] == {"page": 1, "limit": 20, "total": 2, "totalPages": 1, "hasMore": False}
    assert data["defaults"] == {"cdn_max_bytes": None, "cdn_monthly_bytes": None, "policy": None}
    team, default = data["namespaces"]
    assert (team["namespace"], team["files"], team["active_bytes"], team["month_bytes"]) == ("team", 1, 30, 30)
    assert (team["has_override"], default["has_override"]) == (False, True)
    assert default["limits"]["cdn_max_bytes"] == default["override"]["cdn_max_bytes"] == 7
    found = api.get("/cdn/namespaces?search=ONE").json()["data"]["namespaces"]
    assert [each["namespace"] for each in found] == ["team"]


def test_lists_cost_the_same_number_of_queries_however_long(api: Caller) -> None:
    def queries(path: str) -> int:
        api.get(path)
        with CaptureQueriesContext(connection) as asked:
            assert api.get(path).status_code == 200
        return len(asked)

    few = [queries(path) for path in ("/cdn/namespaces", "/cdn/files", "/cdn/files?status=trashed")]
    for number in range(10):
        place = Namespace.objects.create(account=api.account, name="n", slug=f"n-{number}")
        make_file(api.account, place)
    assert [queries(path) for path in ("/cdn/namespaces", "/cdn/files", "/cdn/files?status=trashed")] == [
        few[0],
        few[1] + 1,  # of the variants, for none there is no query
        few[2],
    ]


def test_a_month_that_turned_counts_from_zero_without_a_job(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    make_file(api.account, size=30)
    monkeypatch.setattr("cdn.pools.month_of", lambda moment=None: "2999-01")
    found = api.get("/cdn/usage").json()["data"]
    assert (found["period"], found["ingest"]["bytes"], found["active"]["bytes"]) == ("2999-01", 0, 30)
    make_file(api.account, size=5)
    assert api.get("/cdn/usage").json()["data"]["ingest"] == {"bytes": 5, "files": 1}


def test_a_clock_that_is_set_back_leaves_the_month(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    make_file(api.account, size=30)
    period = api.get("/cdn/usage").json()["data"]["period"]
    monkeypatch.setattr("cdn.pools.month_of", lambda moment=None: "2001-01")
    make_file(api.account, size=5)
    found = api.get("/cdn/usage").json()["data"]
    assert (found["period"], found["ingest"]["bytes"]) == (period, 35)


def test_changes_of_limits_have_audit_entries(api: Caller) -> None:
    api.put("/cdn/quota-defaults", {"cdn_max_bytes": 1})
    set_quota(api, policy=None)
    entries = FileEvent.objects.order_by("pk").values_list("action", "detail")
    assert list(entries) == [
        ("template_set", "Changed cdn_max_bytes."),
        ("quota_set", "default: Changed policy."),
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"cdn_max_bytes": -1}, "cdn_max_bytes"),
        ({"cdn_max_bytes": "1"}, "cdn_max_bytes"),
        ({"cdn_max_bytes": True}, "cdn_max_bytes"),
        ({"cdn_monthly_bytes": 2**53}, "cdn_monthly_bytes"),
        ({"policy": []}, "policy"),
        ({"policy": {"allowedKinds": "image"}}, "policy.allowedKinds"),
        ({"policy": {"allowedKinds": ["picture"]}}, "policy.allowedKinds"),
        ({"policy": {"maxFileBytes": {"picture": 1}}}, "policy.maxFileBytes"),
        ({"policy": {"maxFileBytes": {"image": -1}}}, "policy.maxFileBytes.image"),
        ({"policy": {"maxFileBytes": 5}}, "policy.maxFileBytes"),
        ({"policy": {"tierMediaAccess": {"pro": ["picture"]}}}, "policy.tierMediaAccess"),
        ({"policy": {"tierMediaAccess": {"": []}}}, "policy.tierMediaAccess"),
        ({"policy": {"maxWidth": 1.5}}, "policy.maxWidth"),
        ({"policy": {"maxDurationSeconds": -0.1}}, "policy.maxDurationSeconds"),
    ],
)
def test_a_wrong_limit_is_named(api: Caller, body: dict[str, Any], field: str) -> None:
    for path, more in (("/cdn/quota-defaults", {}), ("/cdn/namespaces/quota", {"namespace": "default"})):
        refused = api.put(path, {**body, **more})
        assert_error(refused, 400, "validation_error")
        assert any(name.startswith(field) for name in refused.json()["details"])


def test_unknown_fields_are_ignored(api: Caller) -> None:
    assert set_quota(api, colour="red", policy={"maxTaste": 1})["policy"] is None
