"""What a workspace of a size would cost, and whether it could be created now."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from django.utils import timezone

from accounts.models import Account
from common.errors import DomainError
from common.times import EPOCH
from credits.prices import CPU_NS_PER_HOUR, PriceTable
from workspaces import placement, quota

MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """`credits_per_hour`: at full use of the CPUs, by the rates of now."""

    credits_per_hour: Decimal
    available: bool


def workspace_estimate(account: Account, wanted: quota.Amount) -> Estimate:
    """Reads only: a create may still be refused, if another one is faster. Traffic of disk and network is not part of
    it, as that is charged as it occurs. Five queries, whatever the account has.
    """
    now = int((timezone.now() - EPOCH).total_seconds() * 1_000_000)
    cpu_time = wanted.cpu_millis * CPU_NS_PER_HOUR // 1000
    price = PriceTable.load().price(now, cpu_time, wanted.memory_mb * MS_PER_HOUR, 0, 0)
    return Estimate(price, _within_limits(account, wanted) and placement.has_room(wanted))


def _within_limits(account: Account, wanted: quota.Amount) -> bool:
    try:
        quota.require_create_allowed(account.plan, quota.account_usage(account), wanted)
    except DomainError:
        return False
    return True
