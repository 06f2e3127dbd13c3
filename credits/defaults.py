"""Default quotas for namespaces that have none (specification, Credit quotas). No other module writes them."""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction

from accounts.models import Account
from accounts.services import account_lock
from common.errors import NotFound
from credits.errors import MAX_SERVICES, ServiceLimitExceeded
from credits.models import QuotaDefault

THRESHOLDS = (80, 95)


@transaction.atomic
def default_set(
    *,
    account: Account,
    service: str,
    limit: Decimal,
    overdraft: Decimal,
    action: str,
    thresholds: list[float],
    auto_apply: bool,
) -> QuotaDefault:
    """Set the default of a service. Existing quotas do not change. Raise ServiceLimitExceeded."""
    account_lock(account)
    others = QuotaDefault.objects.filter(account_id=account.pk).exclude(service=service).count()
    if others >= MAX_SERVICES:
        raise ServiceLimitExceeded(details={"current": others, "max": MAX_SERVICES})
    fields = {
        "quota_limit": limit,
        "overdraft": overdraft,
        "on_overdraft_action": action,
        "notification_thresholds": sorted(set(thresholds)),
        "auto_apply": auto_apply,
    }
    return QuotaDefault.objects.update_or_create(account_id=account.pk, service=service, defaults=fields)[0]


def default_get(account: Account, service: str) -> QuotaDefault:
    """Return the default of a service. Raise NotFound if there is none."""
    found = QuotaDefault.objects.filter(account_id=account.pk, service=service).first()
    if found is None:
        raise NotFound(f"There is no default quota for {service}.")
    return found


@transaction.atomic
def default_toggle(*, account: Account, service: str) -> QuotaDefault:
    """Switch whether the default of a service is applied by itself. Raise NotFound if there is none."""
    account_lock(account)
    found = default_get(account, service)
    found.auto_apply = not found.auto_apply
    # A deletion does not wait for the account.
    if not QuotaDefault.objects.filter(pk=found.pk).update(auto_apply=found.auto_apply):
        raise NotFound(f"There is no default quota for {service}.")
    return found


def default_delete(*, account: Account, service: str) -> None:
    """Delete the default of a service. Quotas that were made from it stay. Raise NotFound if there is none."""
    if not QuotaDefault.objects.filter(account_id=account.pk, service=service).delete()[0]:
        raise NotFound(f"There is no default quota for {service}.")
