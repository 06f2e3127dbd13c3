"""Shares of quotas that are used. Free of the admin, which workers do not load."""

from __future__ import annotations

from decimal import Decimal

from django.db.models import F, QuerySet

from credits.models import Balance

NEAR = Decimal("0.8")  # of a limit


def used_share(row: Balance) -> float | None:
    """Return the used and held credits as a share of the quota; None without a quota."""
    if row.quota_limit is None:
        return None
    return float((row.used + row.held) / row.quota_limit) if row.quota_limit else 1.0


def near_limit(balances: QuerySet[Balance], share: Decimal) -> QuerySet[Balance]:
    """Return the balances of which at least this share of the quota is used or held.

    Reads every balance that has a quota.
    """
    # The limit is divided first: ten times an amount may be more than a column holds.
    least = F("quota_limit") / 10 * int(share * 10)
    found = balances.exclude(quota_limit=None).annotate(spent=F("used") + F("held"))
    return found.filter(spent__gte=least)
