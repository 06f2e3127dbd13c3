"""Response objects of limits and counters."""

from __future__ import annotations

from typing import Any

from cdn.models import Pool
from cdn.policy import POLICY_FIELDS, QUOTA_FIELDS, EffectivePolicy, Layer, PoolLimits
from cdn.selectors import AccountPart, NamespaceUse

NOTHING_SET = Layer("account")


def limits_body(limits: PoolLimits) -> dict[str, Any]:
    """Return the limits of a pool."""
    return {
        "cdn_max_bytes": limits.max_bytes[1],
        "cdn_monthly_bytes": limits.monthly_bytes[1],
        "maxFiles": limits.max_files,
        "maxConcurrentUploads": limits.max_uploads,
    }


def namespace_quota_body(slug: str, layer: Layer) -> dict[str, Any]:
    return {"namespace": slug, **quota_body(layer)}


def quota_body(layer: Layer | None) -> dict[str, Any]:
    """Return the limits that one place states; None means that it states none."""
    layer = layer or NOTHING_SET
    return {**{name: layer.value(name) for name in QUOTA_FIELDS}, "policy": layer.policy or None}


def namespace_body(use: NamespaceUse) -> dict[str, Any]:
    """Return an entry of the list of namespaces."""
    override = use.override if use.override is not None and states_anything(use.override) else None
    return {
        "namespace": use.namespace.slug,
        "files": use.pool.stored_files,
        "active_bytes": use.pool.stored_bytes,
        "month_bytes": use.pool.month_bytes,
        "limits": limits_body(use.policy.pool or use.policy.account),
        "override": None if override is None else quota_body(override),
        "has_override": override is not None,
    }


def states_anything(layer: Layer) -> bool:
    """Return whether a layer states any limit."""
    return bool(layer.policy) or any(layer.value(name) is not None for name in QUOTA_FIELDS)


def policy_body(slug: str | None, policy: EffectivePolicy) -> dict[str, Any]:
    """Return the limits in force, and where they come from."""
    override, plan = policy.layer("namespace"), policy.layers[-1]
    return {
        "namespace": slug,
        "effective": {
            **{name: policy.values[name] for name in QUOTA_FIELDS},
            "policy": {name: policy.values[name] for name in POLICY_FIELDS},
            "sources": policy.sources,
            "clamped": list(policy.clamped),
        },
        "override": quota_body(override) if override is not None and states_anything(override) else None,
        "account": quota_body(policy.layer("account")),
        "plan": {"code": policy.tier, **quota_body(plan)},
    }


def usage_body(part: AccountPart, pool: Pool, policy: EffectivePolicy) -> dict[str, Any]:
    """Return the counters of a part of the account."""
    return {
        "namespace": part.namespace.slug if part.namespace else None,
        "period": pool.month,
        "ingest": {"bytes": pool.month_bytes, "files": pool.month_files},
        "active": {"bytes": pool.stored_bytes, "files": pool.stored_files},
        "trash": {"bytes": pool.trashed_bytes, "files": pool.trashed_files},
        "reserved": {"bytes": pool.reserved_bytes, "files": pool.reserved_files},
        "limits": limits_body(policy.pool or policy.account),
    }
