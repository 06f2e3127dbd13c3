"""Limits in force for files, and where each comes from: permits, uploads, publication and `GET /cdn/policy` ask here.

A field's value is that of the namespace, else of the account's template, else of the account's plan. The plan's value
is the ceiling of the others. Files without a namespace have the plan's limits: only namespaces inherit the template.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from django.db import connection

from accounts.models import Account
from cdn.errors import CdnPolicyViolation
from cdn.facts import FileFacts
from cdn.models import NamespaceQuota, PlanLimits, Template
from cdn.states import Kind
from namespaces.models import Namespace

NUMBERS = (
    "maxTotalBytes",
    "monthlyUploadBytes",
    "maxFiles",
    "maxConcurrentUploads",
    "maxWidth",
    "maxHeight",
    "maxDurationSeconds",
    "maxVariants",
)


class HasValues(Protocol):
    """Limits by name."""

    def value(self, name: str) -> Any:
        """Return the limit; None if none is stated."""


LayerT = TypeVar("LayerT", bound=HasValues)


def first_given(layers: Iterable[LayerT], name: str) -> LayerT | None:
    """Return the first layer that states the field. Zero and an empty list are values; null is not."""
    return next((layer for layer in layers if layer.value(name) is not None), None)


def clamped_value(name: str, value: Any, ceiling: Any) -> Any:
    """Return the value, but no more than the ceiling; None if neither states a limit."""
    if value is None or ceiling is None:
        return ceiling if value is None else value
    if name == "allowedKinds":
        return kinds_in_both(value, ceiling)
    if name == "maxFileBytes":
        return {kind: _least(value.get(kind), ceiling.get(kind)) for kind in {**ceiling, **value}}
    if name == "tierMediaAccess":
        return {tier: _kinds(value.get(tier), ceiling.get(tier)) for tier in {**ceiling, **value}}
    return min(value, ceiling)


def kinds_in_both(kinds: list[str], others: list[str]) -> list[str]:
    """Return the kinds that are in both, in the order of the first."""
    return [kind for kind in kinds if kind in others]


def allowed_kinds(values: dict[str, Any], tier: str) -> list[str] | None:
    """Return the kinds that an account of this tier may store; None: every kind."""
    access = (values["tierMediaAccess"] or {}).get(tier)
    return _kinds(values["allowedKinds"], access)


def _least(one: int | None, other: int | None) -> int | None:
    given = [each for each in (one, other) if each is not None]
    return min(given) if given else None


def _kinds(one: list[str] | None, other: list[str] | None) -> list[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return kinds_in_both(one, other)


Named = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of a pool. `max_bytes` and `monthly_bytes` have the name of their field; None means no limit."""

    max_bytes: Named
    monthly_bytes: Named
    max_files: int | None = None
    max_uploads: int | None = None


def smaller(one: Named, other: Named) -> Named:
    """Return the smaller limit; the first if both are the same."""
    if one[1] is None or other[1] is None:
        return other if one[1] is None else one
    return one if one[1] <= other[1] else other


PICTURES = (Kind.IMAGE, Kind.VIDEO)
TIMED = (Kind.VIDEO, Kind.AUDIO)


def require_file(values: dict[str, Any], tier: str, *, kind: str | None, size: int, variants: int) -> None:
    """Check kind, size and number of variants. Raise CdnPolicyViolation.

    `kind` None: the kind is not known yet, and the largest size counts.
    """
    if kind is not None:
        _require_kind(values, tier, kind)
    most = _most_bytes(values, tier, kind)
    if most is not None and size > most:
        raise _violation("maxFileBytes", most, size, f"A file of {size} bytes is larger than the {most} allowed.")
    _require_most("maxVariants", values, variants, "variants")


def require_found(values: dict[str, Any], facts: FileFacts) -> None:
    """Check dimensions and duration, if the kind has them. Raise CdnPolicyViolation.

    A number that could not be verified is refused if it has a limit.
    """
    if facts.kind in PICTURES:
        _require_measured("maxWidth", values, facts.width, "pixels of width")
        _require_measured("maxHeight", values, facts.height, "pixels of height")
    if facts.kind in TIMED:
        _require_measured("maxDurationSeconds", values, facts.duration_seconds, "seconds")


def _require_kind(values: dict[str, Any], tier: str, kind: str) -> None:
    allowed = allowed_kinds(values, tier)
    if allowed is None or kind in allowed:
        return
    listed = values["allowedKinds"]
    rule = "allowedKinds" if listed is not None and kind not in listed else "tierMediaAccess"
    raise _violation(rule, allowed, kind, f"Files of the kind {kind} are not allowed; allowed: {_list(allowed)}.")


def _most_bytes(values: dict[str, Any], tier: str, kind: str | None) -> int | None:
    by_kind = values["maxFileBytes"] or {}
    if kind is not None:
        most: int | None = by_kind.get(kind)
        return most
    allowed = allowed_kinds(values, tier)
    kinds = [each.value for each in Kind] if allowed is None else allowed
    limits = [by_kind.get(each) for each in kinds]
    return None if None in limits else max((each for each in limits if each is not None), default=None)


def _require_measured(rule: str, values: dict[str, Any], actual: float | None, unit: str) -> None:
    if values[rule] is not None and actual is None:
        raise _violation(rule, values[rule], None, f"{rule} is {values[rule]}, and the file cannot be measured.")
    _require_most(rule, values, actual or 0, unit)


def _require_most(rule: str, values: dict[str, Any], actual: float, unit: str) -> None:
    limit = values[rule]
    if limit is not None and actual > limit:
        raise _violation(rule, limit, actual, f"{actual} {unit} are more than the {limit} allowed.")


def _violation(rule: str, limit: Any, actual: Any, message: str) -> CdnPolicyViolation:
    return CdnPolicyViolation(message, details={"rule": rule, "limit": limit, "actual": actual})


def _list(kinds: list[str]) -> str:
    return ", ".join(kinds) or "none"


# Limits of a plan without a row, which staff have made later.
DEFAULT_MAX_BYTES, DEFAULT_MONTHLY_BYTES = 5 << 30, 10 << 30
DEFAULT_POLICY = {"maxConcurrentUploads": 1000, "maxVariants": 16}
QUOTA_FIELDS = ("cdn_max_bytes", "cdn_monthly_bytes")
POLICY_FIELDS = ("allowedKinds", "maxFileBytes", *NUMBERS, "tierMediaAccess")
PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Layer:
    """Limits that one place states. `source`: `namespace`, `account` or `plan`. A value is None if none is stated."""

    source: str
    cdn_max_bytes: int | None = None
    cdn_monthly_bytes: int | None = None
    policy: dict[str, Any] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        return getattr(self, name) if name in QUOTA_FIELDS else self.policy.get(name)


DEFAULT_PLAN = Layer(PLAN, DEFAULT_MAX_BYTES, DEFAULT_MONTHLY_BYTES, DEFAULT_POLICY)
_LAYERS = f"""
SELECT l.max_bytes, l.monthly_bytes, l.policy, t.cdn_max_bytes, t.cdn_monthly_bytes, t.policy,
    q.cdn_max_bytes, q.cdn_monthly_bytes, q.policy
FROM (SELECT 1) one
LEFT JOIN {PlanLimits._meta.db_table} l ON l.plan_id = %s
LEFT JOIN {Template._meta.db_table} t ON t.account_id = %s
LEFT JOIN {NamespaceQuota._meta.db_table} q ON q.namespace_id = %s
"""  # noqa: S608 - names of tables


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """Limits in force. `values`: by field, None without a limit. `sources`: the layer that each comes from.

    `clamped`: the fields for which a layer asked for more than the plan allows. `account`: the limits of the account's
    pool.
    """

    tier: str
    values: dict[str, Any]
    sources: dict[str, str]
    clamped: tuple[str, ...]
    layers: tuple[Layer, ...]
    account: PoolLimits
    is_namespace: bool

    @property
    def pool(self) -> PoolLimits | None:
        """Return the limits of the namespace's pool; None for files without a namespace, which only the account's pool
        limits.
        """
        return pool_limits(self.values) if self.is_namespace else None

    def layer(self, source: str) -> Layer | None:
        return next((each for each in self.layers if each.source == source), None)

    def check_claim(self, *, kind: str | None, size: int, variants: int) -> None:
        """Check a client's claim about a file; `kind` None if it claims none. Raise CdnPolicyViolation."""
        require_file(self.values, self.tier, kind=kind, size=size, variants=variants)

    def check_found(self, facts: FileFacts, *, variants: int = 0) -> None:
        """Check the facts of a file's bytes.

        Raise CdnPolicyViolation, also for a limited number that could not be verified.
        """
        require_file(self.values, self.tier, kind=facts.kind, size=facts.size, variants=variants)
        require_found(self.values, facts)


def effective_policy(account: Account, namespace: Namespace | None) -> EffectivePolicy:
    """Return the limits by the present rows. One query; the account's plan is not read again."""
    with connection.cursor() as cursor:
        cursor.execute(_LAYERS, [account.plan_id, account.pk, namespace.pk if namespace else None])
        row = cursor.fetchall()[0]
    override, template = _layer("namespace", row[6:9]), _layer("account", row[3:6])
    layers = [override, template, _layer(PLAN, row[:3]) or DEFAULT_PLAN]
    return combined([layer for layer in layers if layer is not None], account.plan_id, namespace is not None)


def _layer(source: str, columns: tuple[Any, ...]) -> Layer | None:
    """Return the layer of a row; None if there is no row, or it states nothing."""
    most, monthly, policy = columns
    if most is None and monthly is None and policy is None:
        return None
    return Layer(source, most, monthly, json.loads(policy) if isinstance(policy, str) else policy or {})


def combined(layers: list[Layer], tier: str, is_namespace: bool) -> EffectivePolicy:
    """Return the limits in force by layers, from the most special one to the plan's."""
    plan = layers[-1]
    asked = layers if is_namespace else [plan]
    values, sources, clamped = {}, {}, []
    for name in (*QUOTA_FIELDS, *POLICY_FIELDS):
        chosen = first_given(asked, name)
        ceiling = plan.value(name)
        values[name] = clamped_value(name, chosen.value(name) if chosen else None, ceiling)
        sources[name] = chosen.source if chosen else PLAN
        if chosen is not None and chosen is not plan and values[name] != chosen.value(name):
            clamped.append(name)
            # A number is then the plan's. A list or map may still come partly from the layer.
            sources[name] = PLAN if values[name] == ceiling else chosen.source
    whole = pool_limits({name: plan.value(name) for name in values})
    return EffectivePolicy(tier, values, sources, tuple(clamped), tuple(layers), whole, is_namespace)


def pool_limits(values: dict[str, Any]) -> PoolLimits:
    """Return the limits of a pool. If two limits count the same bytes the smaller one applies."""
    return PoolLimits(
        max_bytes=smaller(("cdn_max_bytes", values["cdn_max_bytes"]), ("maxTotalBytes", values["maxTotalBytes"])),
        monthly_bytes=smaller(
            ("cdn_monthly_bytes", values["cdn_monthly_bytes"]), ("monthlyUploadBytes", values["monthlyUploadBytes"])
        ),
        max_files=values["maxFiles"],
        max_uploads=values["maxConcurrentUploads"],
    )


def plan_layer(plan_id: str) -> Layer:
    """Return the ceiling of all accounts with the plan."""
    row = PlanLimits.objects.filter(pk=plan_id).first()
    if row is None:
        return DEFAULT_PLAN
    return Layer(PLAN, row.max_bytes, row.monthly_bytes, row.policy)


def template_layer(account_id: str) -> Layer | None:
    """Return the limits that the account's namespaces inherit; None if they were never set."""
    row = Template.objects.filter(pk=account_id).first()
    return None if row is None else row_layer("account", row)


def override_layer(namespace_id: str) -> Layer | None:
    """Return the namespace's own limits; None if they were never set."""
    row = NamespaceQuota.objects.filter(pk=namespace_id).first()
    return None if row is None else row_layer("namespace", row)


def row_layer(source: str, row: Template | NamespaceQuota) -> Layer:
    return Layer(source, row.cdn_max_bytes, row.cdn_monthly_bytes, row.policy or {})
