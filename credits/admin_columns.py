"""Columns and filters of balances and entries in the admin."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from credits.models import Balance, Entry
from credits.quota_shares import NEAR, near_limit, used_share
from staff.parts.columns import BAD, EMPTY, GOOD, WARNING, badge
from staff.parts.lists import ChosenValuesFilter


@admin.display(description="Quota used")
def quota_use(row: Balance) -> SafeString | str:
    share = used_share(row)
    if share is None:
        return EMPTY
    return badge(f"{share:.0%}", BAD if share >= 1 else WARNING if share >= NEAR else GOOD)


class NearLimitFilter(admin.SimpleListFilter):
    """Filter for balances of which at least four fifths of the quota are used, or all of it."""

    title = "quota"
    parameter_name = "quota"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("near", "Near the limit"), ("used", "Used up"), ("any", "With a quota")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Balance]) -> QuerySet[Balance]:
        if self.value() == "any":
            return queryset.exclude(quota_limit=None)
        return near_limit(queryset, NEAR if self.value() == "near" else Decimal(1)) if self.value() else queryset


class ServiceFilter(ChosenValuesFilter):
    """Filter of entries by service.

    If a service has few balances or none, entries are looked up by balance: otherwise a rare service would read the
    whole ledger.
    """

    FEW = 20

    def queryset(self, request: HttpRequest, queryset: QuerySet[Entry]) -> QuerySet[Entry] | None:
        if not self.chosen:
            return queryset
        balances = Balance.objects.filter(service__in=self.chosen)
        found = list(balances.order_by().values_list("pk", flat=True)[: self.FEW + 1])
        return super().queryset(request, queryset) if len(found) > self.FEW else queryset.filter(balance__in=found)
