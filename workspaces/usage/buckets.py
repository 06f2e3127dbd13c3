"""The stored buckets of the series: how they are written, and how far each tier is rolled up."""

from __future__ import annotations

from django.db.models import Max

from workspaces.models import UsagePoint
from workspaces.usage.amounts import SUMS
from workspaces.usage.tiers import Tier


def newest_bucket(tier: Tier, now: float) -> int | None:
    """Return the start of the newest bucket up to `now`. Later ones, from a clock that was ahead, are ignored until
    then.
    """
    buckets = UsagePoint.objects.filter(tier=tier.number, start__lte=int(now))
    newest: int | None = buckets.aggregate(at=Max("start"))["at"]
    return newest


def sql_points(*, adding: bool) -> str:
    """Return SQL that inserts buckets; an existing one is increased by the new sums (`adding`), or replaced."""
    table = UsagePoint._meta.db_table
    columns = ("usage_id", "tier", "start", *SUMS)
    before = f"{table}.{{0}} + " if adding else ""
    changes = ", ".join(f"{name} = {before.format(name)}excluded.{name}" for name in SUMS)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"  # noqa: S608
        f" ON CONFLICT (tier, start, usage_id) DO UPDATE SET {changes}"
    )


def rolled_until(tier: Tier, now: float) -> int:
    """Return up to when a tier is rolled up from the finer one; 0 if not at all."""
    start = newest_bucket(tier, now)
    return start + tier.resolution if start is not None else 0
