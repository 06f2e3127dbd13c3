"""Templates of quotas for namespaces that have none (specification, Credit quotas). The only writer of them."""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction

from accounts.models import Account
from accounts.services import account_lock
from common.errors import NotFound
from credits.models import QuotaDefault, Service

THRESHOLDS = (80, 95)


@transaction.atomic
def default_set(*, account: Account, service: Service, limit: Decimal, auto_apply: bool) -> QuotaDefault:
    """Set the default of a service, with no overdraft and the usual thresholds. Quotas that exist stay as they are."""
    account_lock(account)
    return QuotaDefault.objects.update_or_create(
        account_id=account.pk,
        service=service,
        defaults={"quota_limit": limit, "auto_apply": auto_apply},
        create_defaults={
            "quota_limit": limit,
            "auto_apply": auto_apply,
            "notification_thresholds": list(THRESHOLDS),
        },
    )[0]


def default_get(account: Account, service: Service) -> QuotaDefault:
    """Raises NotFound."""
    found = QuotaDefault.objects.filter(account_id=account.pk, service=service).first()
    if found is None:
        raise NotFound(f"There is no default quota for {service}.")
    return found


@transaction.atomic
def default_toggle(*, account: Account, service: Service) -> QuotaDefault:
    """Switch whether it is applied by itself. Raises NotFound."""
    account_lock(account)
    found = default_get(account, service)
    found.auto_apply = not found.auto_apply
    found.save(update_fields=["auto_apply"])
    return found


def default_delete(*, account: Account, service: Service) -> None:
    """Quotas that were made from it stay. Raises NotFound."""
    if not QuotaDefault.objects.filter(account_id=account.pk, service=service).delete()[0]:
        raise NotFound(f"There is no default quota for {service}.")
