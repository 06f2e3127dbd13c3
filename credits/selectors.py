"""Selectors of balances, quotas and spending, as far as an actor reaches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.db.models import QuerySet, Sum

from accounts.actors import Actor
from common.compiled_query import CompiledQuery
from credits.models import Balance, Entry, Spending
from namespaces.models import Namespace
from namespaces.selectors import visible_namespaces

RECENT_ENTRIES = 50
_COLUMNS = [field.attname for field in Balance._meta.concrete_fields]
_BALANCE = CompiledQuery(
    lambda values: Balance.objects.filter(namespace_id=values[0], service=values[1]).values_list(*_COLUMNS)
)


def today() -> date:
    return datetime.now(UTC).date()


def namespaces_with_quotas(actor: Actor, *, status: str = "") -> QuerySet[Namespace]:
    """Return the namespaces that the actor reaches, newest first."""
    found = visible_namespaces(actor).order_by("-created_at", "-id")
    return found.filter(status=status) if status else found


def quotas_of(namespaces: Iterable[Namespace]) -> dict[str, list[Balance]]:
    """Return the balances that have a quota, by namespace id, in the order of services. One query."""
    found: dict[str, list[Balance]] = defaultdict(list)
    ids = [namespace.pk for namespace in namespaces]
    for balance in Balance.objects.filter(namespace_id__in=ids).exclude(quota_limit=None).order_by("service"):
        found[balance.namespace_id].append(balance)
    return found


def quota_sums(namespaces: QuerySet[Namespace]) -> dict[str, Decimal]:
    """Return the sums of limits and use of all quotas of these namespaces. One query."""
    ids = namespaces.order_by().values("pk")
    rows = Balance.objects.filter(namespace_id__in=ids).exclude(quota_limit=None)
    zero = Decimal(0)
    return rows.aggregate(total_limit=Sum("quota_limit", default=zero), total_used=Sum("used", default=zero))


def spending_of(namespace: Namespace, *, days: int, service: str = "") -> list[Spending]:
    """Return what was spent each day by each service in the last `days` UTC days, today included; oldest first."""
    since = today() - timedelta(days=days - 1)
    rows = Spending.objects.filter(balance__namespace_id=namespace.pk, day__gte=since).select_related("balance")
    return list((rows.filter(balance__service=service) if service else rows).order_by("day", "balance__service"))


def summary_of(spending: Sequence[Spending]) -> list[dict[str, Any]]:
    """Return requests and credits by service."""
    sums: dict[str, list[Any]] = {}
    for row in spending:
        each = sums.setdefault(row.balance.service, [0, Decimal(0)])
        each[0] += row.requests
        each[1] += row.credits
    return [{"service": name, "requests": sums[name][0], "credits": sums[name][1]} for name in sorted(sums)]


def timeline_of(spending: Sequence[Spending]) -> list[dict[str, Any]]:
    """Return credits by day, for the days on which something was spent."""
    days: dict[date, Decimal] = defaultdict(Decimal)
    for row in spending:
        days[row.day] += row.credits
    return [{"date": day.isoformat(), "credits": credits} for day, credits in sorted(days.items())]


def recent_entries(namespace: Namespace) -> list[Entry]:
    """Return the newest entries of the ledger, with their balances.

    There is a query for each balance, of which there are few. One query for several would read all of their entries, or
    everybody's.
    """
    found: list[Entry] = []
    for balance in Balance.objects.filter(namespace_id=namespace.pk):
        rows = Entry.objects.filter(balance=balance).select_related("balance").order_by("-id")
        found += rows[:RECENT_ENTRIES]
    return sorted(found, key=lambda row: row.pk, reverse=True)[:RECENT_ENTRIES]


def balance_for(namespace_id: str, service: str) -> Balance | None:
    """Return the balance of a service; None if nothing was spent and no quota was set."""
    row = _BALANCE.first_row([namespace_id, service])
    return None if row is None else Balance.from_db(DEFAULT_DB_ALIAS, _COLUMNS, row)
