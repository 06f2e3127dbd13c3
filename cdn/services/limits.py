"""Services of limits, the only writers of templates, overrides and ceilings of accounts, namespaces and plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from accounts.models import Account
from accounts.services import account_lock
from cdn.audit import record_event
from cdn.models import NamespaceQuota, PlanLimits, Template
from cdn.policy import Layer, row_layer
from common.errors import NotFound, ValidationError
from common.request_origin import NO_ORIGIN, RequestOrigin
from common.saved_rows import delete_unless_deleted, save_unless_deleted
from namespaces.models import Namespace


@transaction.atomic
def template_set(
    *, account: Account, changes: Mapping[str, Any], actor: str, origin: RequestOrigin = NO_ORIGIN
) -> Layer:
    """Change the limits that the account's namespaces inherit. Idempotent.

    A field that is left out does not change, null inherits the plan's limit. The same is true of the fields of
    `policy`; null for the whole policy removes all of them.
    """
    account_lock(account)
    row, _ = Template.objects.get_or_create(account=account)
    _apply(row, changes)
    record_event(account.pk, "template_set", _named(changes), actor=actor, origin=origin)
    return row_layer("account", row)


@transaction.atomic
def namespace_quota_set(
    *, namespace: Namespace, changes: Mapping[str, Any], actor: str, origin: RequestOrigin = NO_ORIGIN
) -> Layer:
    """Change the limits of one namespace in the same way; null inherits the template's limit. Raise NotFound."""
    account_lock(Account(pk=namespace.account_id))
    if not Namespace.objects.filter(pk=namespace.pk, deleted_at=None).exists():
        raise NotFound(f"There is no namespace {namespace.slug!r}.")
    row, _ = NamespaceQuota.objects.get_or_create(namespace=namespace)
    _apply(row, changes)
    detail = f"{namespace.slug}: {_named(changes)}"
    record_event(namespace.account_id, "quota_set", detail, actor=actor, origin=origin)
    return row_layer("namespace", row)


def plan_limits_save(row: PlanLimits) -> PlanLimits:
    """Create the ceiling of a plan or change it. New limits apply from the next permit on; stored files stay.

    Raise NotFound if it was deleted since it was read, Conflict if another one was added, ValidationError.
    """
    if not isinstance(row.policy, dict):
        raise ValidationError(details={"policy": ["A policy must be a JSON object."]})
    row.full_clean(validate_unique=False, validate_constraints=False)
    save_unless_deleted(row)
    return row


def plan_limits_delete(row: PlanLimits) -> None:
    """Delete the ceiling of a plan: it has the limits of plans without a row from now on (`cdn.policy`).

    Raise NotFound if it was deleted since it was read.
    """
    delete_unless_deleted(row)


def _apply(row: Template | NamespaceQuota, changes: Mapping[str, Any]) -> None:
    for name in ("cdn_max_bytes", "cdn_monthly_bytes"):
        if name in changes:
            setattr(row, name, changes[name])
    if "policy" in changes:
        row.policy = merged_policy(row.policy, changes["policy"])
    row.save()


def merged_policy(stored: Mapping[str, Any] | None, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the merged policy; None if no field is left.

    Fields that are left out stay, null removes a field, null for the whole policy removes all.
    """
    if given is None:
        return None
    merged = {**(stored or {}), **given}
    return {name: value for name, value in merged.items() if value is not None} or None


def _named(changes: Mapping[str, Any]) -> str:
    return f"Changed {', '.join(sorted(changes)) or 'nothing'}."
