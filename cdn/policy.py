"""What may be stored, and where each limit comes from: the one function that permits, uploads, publication and
`GET /cdn/policy` ask.

A field's value is that of the namespace, else that of the account's template, else that of the account's plan, which is
the ceiling of the others. Files without a namespace have the plan's limits: the template is what namespaces inherit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from accounts.models import Account
from cdn.facts import FileFacts
from cdn.models import NamespaceQuota, PlanLimits, Template
from cdn.policy_rules import NUMBERS, clamped_value, first_given
from cdn.pool_limits import PoolLimits, smaller
from cdn.violations import require_file, require_found
from namespaces.models import Namespace

# Of a plan without a row: one that staff have made since.
DEFAULT_MAX_BYTES, DEFAULT_MONTHLY_BYTES = 5 << 30, 10 << 30
DEFAULT_POLICY = {"maxConcurrentUploads": 1000, "maxVariants": 16}
QUOTA_FIELDS = ("cdn_max_bytes", "cdn_monthly_bytes")
POLICY_FIELDS = ("allowedKinds", "maxFileBytes", *NUMBERS, "tierMediaAccess")
PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Layer:
    """The limits that one place states. `source`: `namespace`, `account` or `plan`; None: it states none."""

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
    """`values`: by field, None without a limit. `sources`: from which layer each comes. `clamped`: the fields of which
    a layer asked for more than the plan allows. `account`: the limits of the account's pool.
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
        """Of the namespace's pool; None: files without a namespace are limited by the account's alone."""
        return pool_limits(self.values) if self.is_namespace else None

    def layer(self, source: str) -> Layer | None:
        return next((each for each in self.layers if each.source == source), None)

    def check_claim(self, *, kind: str | None, size: int, variants: int) -> None:
        """Of what a client says of a file; `kind` None: it says nothing. Raises CdnPolicyViolation."""
        require_file(self.values, self.tier, kind=kind, size=size, variants=variants)

    def check_found(self, facts: FileFacts, *, variants: int = 0) -> None:
        """Of what its bytes are. Raises CdnPolicyViolation, also for what could not be verified and has a limit."""
        require_file(self.values, self.tier, kind=facts.kind, size=facts.size, variants=variants)
        require_found(self.values, facts)


def effective_policy(account: Account, namespace: Namespace | None) -> EffectivePolicy:
    """As the rows are now. One query; the account's plan is not read again."""
    with connection.cursor() as cursor:
        cursor.execute(_LAYERS, [account.plan_id, account.pk, namespace.pk if namespace else None])
        row = cursor.fetchall()[0]
    override, template = _layer("namespace", row[6:9]), _layer("account", row[3:6])
    layers = [override, template, _layer(PLAN, row[:3]) or DEFAULT_PLAN]
    return combined([layer for layer in layers if layer is not None], account.plan_id, namespace is not None)


def _layer(source: str, columns: tuple[Any, ...]) -> Layer | None:
    """None where there is no row, or one that states nothing."""
    most, monthly, policy = columns
    if most is None and monthly is None and policy is None:
        return None
    return Layer(source, most, monthly, json.loads(policy) if isinstance(policy, str) else policy or {})


def combined(layers: list[Layer], tier: str, is_namespace: bool) -> EffectivePolicy:
    """Of layers from the most special one to the plan's."""
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
            # A number is the plan's then; of lists and maps a part is still the layer's.
            sources[name] = PLAN if values[name] == ceiling else chosen.source
    whole = pool_limits({name: plan.value(name) for name in values})
    return EffectivePolicy(tier, values, sources, tuple(clamped), tuple(layers), whole, is_namespace)


def pool_limits(values: dict[str, Any]) -> PoolLimits:
    """Where two limits speak of the same bytes the smaller one holds."""
    return PoolLimits(
        max_bytes=smaller(("cdn_max_bytes", values["cdn_max_bytes"]), ("maxTotalBytes", values["maxTotalBytes"])),
        monthly_bytes=smaller(
            ("cdn_monthly_bytes", values["cdn_monthly_bytes"]), ("monthlyUploadBytes", values["monthlyUploadBytes"])
        ),
        max_files=values["maxFiles"],
        max_uploads=values["maxConcurrentUploads"],
    )


def plan_layer(plan_id: str) -> Layer:
    """The ceiling of all accounts with the plan."""
    row = PlanLimits.objects.filter(pk=plan_id).first()
    if row is None:
        return DEFAULT_PLAN
    return Layer(PLAN, row.max_bytes, row.monthly_bytes, row.policy)


def template_layer(account_id: str) -> Layer | None:
    """What the account's namespaces inherit, if it was ever set."""
    row = Template.objects.filter(pk=account_id).first()
    return None if row is None else row_layer("account", row)


def override_layer(namespace_id: str) -> Layer | None:
    """What the namespace has instead, if anything was ever set."""
    row = NamespaceQuota.objects.filter(pk=namespace_id).first()
    return None if row is None else row_layer("namespace", row)


def row_layer(source: str, row: Template | NamespaceQuota) -> Layer:
    return Layer(source, row.cdn_max_bytes, row.cdn_monthly_bytes, row.policy or {})
