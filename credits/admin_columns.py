"""Columns and filters of balances and entries in the admin."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from common.admin_columns import BAD, EMPTY, GOOD, WARNING, badge
from common.admin_lists import IndexedChoicesFilter
from credits.models import Balance, EntryKind

NEAR = Decimal("0.8")  # of a limit


def used_share(row: Balance) -> float | None:
    """What is used and held as a part of the quota; None without one."""
    if row.quota_limit is None:
        return None
    return float((row.used + row.held) / row.quota_limit) if row.quota_limit else 1.0


@admin.display(description="Of quota")
def quota_use(row: Balance) -> SafeString | str:
    share = used_share(row)
    if share is None:
        return EMPTY
    return badge(f"{share:.0%}", BAD if share >= 1 else WARNING if share >= NEAR else GOOD)


class NearLimitFilter(admin.SimpleListFilter):
    """Balances of which at least four fifths of the quota are used, or all of it."""

    title = "quota"
    parameter_name = "quota"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("near", "Near the limit"), ("used", "Used up"), ("any", "With a quota")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Balance]) -> QuerySet[Balance]:
        if self.value() == "any":
            return queryset.exclude(quota_limit=None)
        return near_limit(queryset, NEAR if self.value() == "near" else Decimal(1)) if self.value() else queryset


def near_limit(balances: QuerySet[Balance], share: Decimal) -> QuerySet[Balance]:
    """Those of which at least this share of the quota is used or held. Reads every balance that has a quota."""
    # Divided first: ten times an amount may be more than a column holds.
    least = F("quota_limit") / 10 * int(share * 10)
    found = balances.exclude(quota_limit=None).annotate(spent=F("used") + F("held"))
    return found.filter(spent__gte=least)


class KindFilter(IndexedChoicesFilter):
    """Kinds of entries; all but charges, which nearly all are, by the index of those."""

    indexed = frozenset(EntryKind.values) - {EntryKind.CHARGE}
    condition = "NOT ({} = 'charge')"  # of the index `entries_but_charges`
