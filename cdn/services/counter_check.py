"""Check whether the counters agree with the rows: sums over the files of an account, with the account locked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict

from django.db import transaction
from django.db.models import Count, Sum

from accounts.models import Account
from accounts.services import account_lock
from cdn.models import File, Permit, Pool
from cdn.pools import COLUMNS, Change, personal_key
from cdn.states import UNFINISHED, UPLOADABLE, FileStatus

Counted = dict[str, dict[str, int]]
# Deleted files stay counted, so these counters are at least the sums of the rows.
AT_LEAST = ("month_bytes", "month_files")


def counters_check() -> Iterator[str]:
    """Yield a sentence for each difference. Each account is locked for its own sums only."""
    accounts = set(Pool.objects.order_by().values_list("account_id", flat=True).distinct())
    accounts |= set(File.objects.order_by().values_list("account_id", flat=True).distinct())
    for account_id in sorted(accounts):
        yield from account_check(account_id)


@transaction.atomic
def account_check(account_id: str) -> list[str]:
    """Return the differences of one account, and of its account pool against the sum of its others."""
    if not Account.objects.filter(pk=account_id).exists():
        return []
    account_lock(Account(pk=account_id))
    pools = {pool.pk: pool for pool in Pool.objects.filter(account_id=account_id)}
    expected = counted(account_id, {key: pool.month for key, pool in pools.items()})
    found = {key: {name: getattr(pool, name) for name in COLUMNS} for key, pool in pools.items()}
    return [
        f"{key}: {name} is {found.get(key, {}).get(name, 0)}, the rows say {expected[key][name]}"
        for key in sorted({*expected, *found})
        for name in COLUMNS
        if _differs(name, found.get(key, {}).get(name, 0), expected[key][name])
    ]


def _differs(name: str, found: int, expected: int) -> bool:
    return found < expected if name in AT_LEAST else found != expected


def counted(account_id: str, months: dict[str, str]) -> Counted:
    """Return the sums of the rows by pool. `months`: the month that each pool counts."""
    sums: Counted = defaultdict(lambda: asdict(Change()))
    _add_files(sums, account_id)
    _add_permits(sums, account_id)
    _add_months(sums, account_id, months)
    return sums


def _add(sums: Counted, account_id: str, namespace_id: str | None, **values: int) -> None:
    for key in (namespace_id or personal_key(account_id), account_id):
        for name, value in values.items():
            sums[key][name] += value


def _add_files(sums: Counted, account_id: str) -> None:
    rows = File.objects.filter(account_id=account_id).order_by().values("namespace_id", "status")
    for row in rows.annotate(files=Count("pk"), bytes=Sum("footprint")):
        if row["status"] == FileStatus.ACTIVE:
            _add(sums, account_id, row["namespace_id"], stored_files=row["files"], stored_bytes=row["bytes"])
        elif row["status"] == FileStatus.TRASHED:
            _add(sums, account_id, row["namespace_id"], trashed_files=row["files"], trashed_bytes=row["bytes"])
        elif row["status"] == FileStatus.REJECTED:
            _add(sums, account_id, row["namespace_id"], rejected_files=row["files"])
        else:
            _add(sums, account_id, row["namespace_id"], reserved_files=row["files"])


def _add_permits(sums: Counted, account_id: str) -> None:
    permits = Permit.objects.filter(file__account_id=account_id, file__status__in=UNFINISHED).order_by()
    for namespace_id, state, reserved in permits.values_list("file__namespace_id", "state", "reserved_bytes"):
        _add(sums, account_id, namespace_id, reserved_bytes=reserved, open_permits=int(state in UPLOADABLE))


def _add_months(sums: Counted, account_id: str, months: dict[str, str]) -> None:
    for month in {*months.values()} - {""}:
        year, number = map(int, month.split("-"))
        rows = File.objects.filter(account_id=account_id, published_at__year=year, published_at__month=number)
        for row in rows.order_by().values("namespace_id").annotate(files=Count("pk"), bytes=Sum("footprint")):
            for key in (row["namespace_id"] or personal_key(account_id), account_id):
                if months.get(key) == month:
                    sums[key]["month_files"] += row["files"]
                    sums[key]["month_bytes"] += row["bytes"]
