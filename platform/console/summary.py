"""Counts of every few minutes: workspaces by status for the trend, and sums over tables that grow with the number
of accounts, which a page must not read each time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TypedDict

from django.db import transaction
from django.db.models import Count, Q, Sum
from django.utils import timezone

from accounts.models import Account
from cdn.models import Pool
from cdn.states import PoolKind
from common.cached_value import CachedValue
from console.models import HourlySummary
from credits.models import Balance, Spending
from credits.quota_shares import NEAR, near_limit, used_share
from namespaces.models import Namespace
from workspaces.models import Workspace
from workspaces.quota import plan_pool
from workspaces.states import OWNS_NOTHING

KEPT_DAYS = 14
# Readers of the dashboard share what is counted once in this time: it grows with the number of workspaces.
CACHED_SECONDS = 5.0
SPENDING_DAYS = 14
SHOWN = 8


class FullPool(TypedDict):
    """A pool of which at least four fifths are used. `of`: the model and key of its page."""

    what: str
    owner: str
    of: tuple[str, str]
    used: str
    limit: str
    share: float


class Details(TypedDict):
    """`spending`: credits by service, for each of `days`; `payers`: namespaces (id, slug, credits), most first;
    `payer_days`: theirs by id, for each of `days`."""

    pools: list[FullPool]
    days: list[str]
    spending: dict[str, list[float]]
    payers: list[tuple[str, str, float]]
    payer_days: dict[str, list[float]]


def status_counts() -> dict[str, int]:
    """Return workspaces by status. One query, which reads an entry of an index for each workspace."""
    rows = Workspace.objects.order_by().values_list("status").annotate(count=Count("*"))
    return dict(rows)


STATUS_COUNTS = CachedValue(status_counts, CACHED_SECONDS)


def summary_take(now: datetime | None = None) -> HourlySummary:
    """Write the row of this hour, and remove what is too old. Safe to repeat; of two at once the later one stays.

    Reads every balance, pool and workspace: some seconds with a hundred thousand of each.
    """
    now = now or timezone.now()
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    days, payers = _days(now.date()), _payers(now.date())
    details = Details(
        pools=_full_pools(),
        days=[day.isoformat() for day in days],
        spending=_by_day(days, "balance__service", Q()),
        payers=payers,
        payer_days=_by_day(
            days, "balance__namespace_id", Q(balance__namespace_id__in=[namespace_id for namespace_id, _, _ in payers])
        ),
    )
    values = {"taken_at": now, "counts": status_counts(), "details": details}
    with transaction.atomic():
        row, _ = HourlySummary.objects.update_or_create(hour=hour, defaults=values)
        HourlySummary.objects.filter(hour__lt=hour).exclude(details=None).update(details=None)
        HourlySummary.objects.filter(hour__lt=hour - timedelta(days=KEPT_DAYS)).delete()
    return row


def _full_pools() -> list[FullPool]:
    found = [*_full_plans(), *_full_quotas(), *_full_cdn_pools()]
    return sorted(found, key=lambda pool: pool["share"], reverse=True)[:SHOWN]


def _full_plans() -> Iterator[FullPool]:
    """Yield accounts that own most of what their plan allows."""
    owned = Workspace.objects.filter(~Q(status__in=OWNS_NOTHING)).order_by().values_list("account_id")
    sums = owned.annotate(Sum("cpu_millis"), Sum("memory_mb"), Sum("disk_size_mb"))
    used = {account_id: amounts for account_id, *amounts in sums}
    for account in Account.objects.select_related("plan").order_by():
        plan, pool = account.plan, plan_pool(account.plan)
        cpus, memory, disk = used.get(account.pk, (0, 0, 0))
        yield from _full(account, "workspaces", account.workspace_count, plan.max_workspaces)
        yield from _full(account, "CPUs", cpus / 1000, pool.cpu_millis / 1000)
        yield from _full(account, "memory (GiB)", memory / 1024, pool.memory_mb / 1024)
        yield from _full(account, "disk (GiB)", disk / 1024, pool.disk_size_mb / 1024)


def _full(account: Account, what: str, used: float, limit: float) -> Iterator[FullPool]:
    if used and used >= limit * float(NEAR):
        yield _pool(what, account.name, ("accounts.Account", account.pk), used, limit)


def _full_quotas() -> Iterator[FullPool]:
    balances = list(near_limit(Balance.objects.all(), NEAR).order_by()[:1000])
    balances.sort(key=lambda row: used_share(row) or 0, reverse=True)
    slugs = _slugs({row.namespace_id for row in balances[:SHOWN]})
    for row in balances[:SHOWN]:
        owner = slugs.get(row.namespace_id, row.namespace_id)
        used, limit = float(row.used + row.held), float(row.quota_limit or 0)
        yield _pool(f"credits for {row.get_service_display()}", owner, ("credits.Balance", str(row.pk)), used, limit)


def _full_cdn_pools() -> Iterator[FullPool]:
    rows = Pool.objects.filter(kind=PoolKind.ACCOUNT).select_related("account__plan__cdn_limits").order_by()
    for row in rows.filter(account__plan__cdn_limits__isnull=False):
        limit = row.account.plan.cdn_limits.max_bytes / 2**30
        used = (row.stored_bytes + row.trashed_bytes + row.reserved_bytes) / 2**30
        if used and used >= limit * float(NEAR):
            yield _pool("CDN (GiB)", row.account.name, ("cdn.Pool", row.owner), used, limit)


def _pool(what: str, owner: str, of: tuple[str, str], used: float, limit: float) -> FullPool:
    share = used / limit if limit else 1.0
    return FullPool(what=what, owner=owner, of=of, used=f"{used:,.5g}", limit=f"{limit:,.5g}", share=round(share, 3))


def _days(today: date) -> list[date]:
    return [today - timedelta(days=back) for back in reversed(range(SPENDING_DAYS))]


def _by_day(days: list[date], column: str, chosen: Q) -> dict[str, list[float]]:
    """Return the credits of each value of a column, on each of the days."""
    rows = Spending.objects.filter(chosen, day__gte=days[0]).order_by().values_list("day", column)
    found: dict[str, dict[date, Decimal]] = defaultdict(dict)
    for day, name, spent in rows.annotate(spent=Sum("credits")):
        found[name][day] = spent
    return {name: [float(by_day.get(day, 0)) for day in days] for name, by_day in sorted(found.items())}


def _payers(today: date) -> list[tuple[str, str, float]]:
    rows = (
        Spending.objects.filter(day__gt=today - timedelta(days=SPENDING_DAYS))
        .order_by()
        .values_list("balance__namespace_id")
    )
    most = list(rows.annotate(spent=Sum("credits")).order_by("-spent")[:SHOWN])
    slugs = _slugs({name for name, _ in most})
    return [(name, slugs.get(name, name), float(spent)) for name, spent in most]


def _slugs(ids: set[str]) -> dict[str, str]:
    return dict(Namespace.objects.filter(pk__in=ids).values_list("pk", "slug"))
