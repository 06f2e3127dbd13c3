"""All combinations of the limits of plan, account and namespace, beside what the specification says in words."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from cdn.errors import CdnPolicyViolation
from cdn.facts import FileFacts
from cdn.models import NamespaceQuota, PlanLimits, Template
from cdn.policy import Layer, combined, effective_policy
from namespaces.models import Namespace
from tests.callers import Caller

NUMBERS = [None, 0, 5, 10, 20]
KINDS = [None, [], ["image"], ["image", "video"], ["audio"]]
BY_KIND = [None, {}, {"image": 0}, {"image": 5, "video": 9}, {"image": 20}]
BY_TIER = [None, {}, {"pro": ["image"]}, {"pro": []}, {"free": ["audio"], "pro": ["video", "image"]}]


def effective(name: str, plan: Any, account: Any, namespace: Any) -> Any:
    """Of one field, and where it comes from."""

    def layer(source: str, value: Any) -> Layer:
        if name in {"cdn_max_bytes", "cdn_monthly_bytes"}:
            return Layer(source, **{name: value})
        return Layer(source, policy={} if value is None else {name: value})

    layers = [layer("namespace", namespace), layer("account", account), layer("plan", plan)]
    policy = combined(layers, "pro", is_namespace=True)
    return policy.values[name], policy.sources[name]


@pytest.mark.parametrize("name", ["cdn_max_bytes", "cdn_monthly_bytes", "maxFiles", "maxDurationSeconds"])
def test_numbers(name: str) -> None:
    for plan, account, namespace in product(NUMBERS, repeat=3):
        asked = namespace if namespace is not None else account
        expected = plan if asked is None else asked if plan is None else min(asked, plan)
        value, source = effective(name, plan, account, namespace)
        assert value == expected, (plan, account, namespace)
        if asked is None or (plan is not None and asked > plan):
            assert source == "plan"
        else:
            assert source == ("namespace" if namespace is not None else "account")


def test_allowed_kinds() -> None:
    for plan, account, namespace in product(KINDS, repeat=3):
        asked = namespace if namespace is not None else account
        expected = plan if asked is None else asked
        if asked is not None and plan is not None:
            expected = [kind for kind in asked if kind in plan]
        assert effective("allowedKinds", plan, account, namespace)[0] == expected, (plan, account, namespace)


def test_bytes_by_kind() -> None:
    for plan, account, namespace in product(BY_KIND, repeat=3):
        asked = namespace if namespace is not None else account
        value, _ = effective("maxFileBytes", plan, account, namespace)
        for kind in ("image", "video"):
            limits = [each[kind] for each in (asked, plan) if each is not None and kind in each]
            assert (value or {}).get(kind) == (min(limits) if limits else None), (plan, account, namespace)


def test_kinds_by_tier() -> None:
    for plan, account, namespace in product(BY_TIER, repeat=3):
        asked = namespace if namespace is not None else account
        value, _ = effective("tierMediaAccess", plan, account, namespace)
        for tier in ("pro", "free"):
            limits = [set(each[tier]) for each in (asked, plan) if each is not None and tier in each]
            found = (value or {}).get(tier)
            assert (None if found is None else set(found)) == (set.intersection(*limits) if limits else None)


def test_a_policy_of_one_field_leaves_the_others_inherited() -> None:
    layers = [
        Layer("namespace", policy={"maxFiles": 3}),
        Layer("account", 50, policy={"maxFiles": 9, "maxWidth": 7, "allowedKinds": ["image"]}),
        Layer("plan", 100, 200, {"maxVariants": 2}),
    ]
    policy = combined(layers, "pro", is_namespace=True)
    shown = {name: (policy.values[name], policy.sources[name]) for name in policy.values}
    assert shown["maxFiles"] == (3, "namespace")
    assert shown["maxWidth"] == (7, "account")
    assert shown["allowedKinds"] == (["image"], "account")
    assert shown["maxVariants"] == (2, "plan")
    assert (shown["cdn_max_bytes"], shown["cdn_monthly_bytes"]) == ((50, "account"), (200, "plan"))


def test_where_two_limits_speak_of_the_same_bytes_the_smaller_holds() -> None:
    for first, second in product([None, 0, 5, 10], repeat=2):
        layers = [Layer("plan", first, first, {"maxTotalBytes": second, "monthlyUploadBytes": second})]
        limits = combined(layers, "pro", is_namespace=True).pool
        assert limits is not None
        given = [each for each in (first, second) if each is not None]
        expected = min(given) if given else None
        assert (limits.max_bytes[1], limits.monthly_bytes[1]) == (expected, expected)


def test_the_account_is_limited_by_its_plan_whatever_the_namespace_has() -> None:
    layers = [Layer("namespace", 5), Layer("account", 7), Layer("plan", 10, 20, {"maxFiles": 3})]
    policy = combined(layers, "pro", is_namespace=True)
    assert policy.account.max_bytes == ("cdn_max_bytes", 10)
    assert policy.account.max_files == 3


def test_files_without_a_namespace_have_the_limits_of_the_plan() -> None:
    layers = [Layer("account", 7, policy={"allowedKinds": []}), Layer("plan", 10)]
    policy = combined(layers, "pro", is_namespace=False)
    assert (policy.values["cdn_max_bytes"], policy.values["allowedKinds"], policy.pool) == (10, None, None)


@pytest.mark.parametrize(
    ("policy", "facts", "rule"),
    [
        ({"maxWidth": 10}, {"kind": "image", "width": 11, "height": 1}, "maxWidth"),
        ({"maxHeight": 10}, {"kind": "image", "width": 11, "height": 11}, "maxHeight"),
        ({"maxWidth": 10}, {"kind": "image"}, "maxWidth"),
        ({"maxWidth": 10}, {"kind": "document"}, None),
        ({"maxDurationSeconds": 1.5}, {"kind": "audio", "duration_seconds": 1.6}, "maxDurationSeconds"),
        ({"maxDurationSeconds": 1.5}, {"kind": "video"}, "maxDurationSeconds"),
        ({"maxDurationSeconds": 1.5}, {"kind": "image"}, None),
        ({"maxFileBytes": {"image": 99}}, {"kind": "image"}, "maxFileBytes"),
        ({"maxFileBytes": {"video": 99}}, {"kind": "image"}, None),
        ({"tierMediaAccess": {"pro": ["video"]}}, {"kind": "image"}, "tierMediaAccess"),
        ({"tierMediaAccess": {"free": ["video"]}}, {"kind": "image"}, None),
        ({"allowedKinds": []}, {"kind": "other"}, "allowedKinds"),
    ],
)
def test_what_was_found_is_checked(policy: dict[str, Any], facts: dict[str, Any], rule: str | None) -> None:
    found = FileFacts(content_type="a/b", extension="b", size=100, sha256="", **facts)
    made = combined([Layer("plan", policy=policy)], "pro", is_namespace=True)
    if rule is None:
        made.check_found(found)
        return
    with pytest.raises(CdnPolicyViolation) as refused:
        made.check_found(found)
    assert refused.value.details is not None
    assert refused.value.details["rule"] == rule


@pytest.mark.django_db
def test_the_rows_are_read_as_they_are(api: Caller) -> None:
    namespace = Namespace.objects.get(account=api.account)
    plan = PlanLimits.objects.get(pk=api.account.plan_id)
    Template.objects.create(account=api.account, cdn_monthly_bytes=7, policy={"maxWidth": 3})
    NamespaceQuota.objects.create(namespace=namespace, cdn_max_bytes=0)
    found = effective_policy(api.account, namespace)
    assert (found.values["cdn_max_bytes"], found.values["cdn_monthly_bytes"], found.values["maxWidth"]) == (0, 7, 3)
    assert effective_policy(api.account, None).values["cdn_max_bytes"] == plan.max_bytes
    PlanLimits.objects.all().delete()
    assert effective_policy(api.account, None).values["cdn_max_bytes"] == 5 << 30
