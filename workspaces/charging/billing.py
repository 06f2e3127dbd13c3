"""Closing billing cycles: `credits.usage` for each workspace that was charged in one (wire contract, section 7).

A cycle is sealed first: no pass adds to it any more. Then its rows are reported a batch at a time; the events, the
position in the cycle and the deletion of the reported rows commit together. So a process that dies has reported whole
batches, and the next process continues after them. If two run at once, one waits and finds the other's position. Memory
holds one batch, however many workspaces there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from common.times import from_epoch, iso
from credits.amounts import MAX_CREDITS, as_number
from webhooks.events import NewEvent, publish_events
from workspaces.charging.cycles import cycle_seal
from workspaces.charging.position import lock_position, read_position
from workspaces.models import BillingCycle, CycleUsage, Workspace
from workspaces.models.usage import units_of

EVENT = "credits.usage"
BATCH = 500  # workspaces in one transaction
MAX_BATCHES = 100  # in one call; the next call does the rest


def cycles_close() -> int:
    """Close the cycles that are over, oldest first, or continue with one. Return how many workspaces were reported.

    Two queries if no cycle is over.
    """
    reported, batches = 0, 0
    for cycle in _cycles_over():
        _seal(cycle)
        while batches < MAX_BATCHES:
            batches += 1
            count = _report_batch(cycle)
            if count is None:
                break
            reported += count
    return reported


def _cycles_over() -> list[BillingCycle]:
    """Return the open cycles that have ended, or that were left before their end because a clock was ahead."""
    unclosed = list(BillingCycle.objects.filter(closed_at=None).order_by("pk"))
    # This is read after the cycles: a cycle that existed before and is not current now never is again.
    current, now = read_position().cycle_id, timezone.now().timestamp()
    return [cycle for cycle in unclosed if cycle.end <= now or cycle.pk != current]


@transaction.atomic
def _seal(cycle: BillingCycle) -> None:
    """Seal a cycle, after waiting for a pass of charging that adds to it."""
    cycle_seal(lock_position(), cycle)


@transaction.atomic
def _report_batch(sealed: BillingCycle) -> int | None:
    """Report a batch of workspaces and return how many, or None once the cycle is closed."""
    cycle = BillingCycle.objects.select_for_update().filter(pk=sealed.pk, closed_at=None).first()
    if cycle is None:
        return None
    rows = list(_unreported(cycle)[:BATCH])
    if not rows:
        cycle.closed_at = timezone.now()
        cycle.save(update_fields=["closed_at"])
        return None
    publish_events([_event(cycle, row, name) for row, name in _named(rows)])
    cycle.reported_id = rows[-1].metered_id
    cycle.workspaces = F("workspaces") + len(rows)
    # The sum is over all accounts, and capped: one that used very much must not keep the others from being reported.
    cycle.credits = min(sum((row.credits for row in rows), cycle.credits), MAX_CREDITS)
    cycle.save(update_fields=["reported_id", "workspaces", "credits"])
    CycleUsage.objects.filter(cycle=cycle, metered_id__lte=cycle.reported_id).delete()
    return len(rows)


def _unreported(cycle: BillingCycle) -> Any:
    rows = CycleUsage.objects.filter(cycle=cycle, metered_id__gt=cycle.reported_id)
    return rows.select_related("metered").order_by("metered_id")


def _named(rows: Sequence[CycleUsage]) -> Iterator[tuple[CycleUsage, str]]:
    """Yield each row with the workspace's name; for a deleted workspace its last one."""
    ids = [row.metered.workspace_id for row in rows]
    names = dict(Workspace.objects.filter(pk__in=ids).values_list("pk", "name"))
    for row in rows:
        yield row, names.get(row.metered.workspace_id, row.metered.workspace_name)


def _event(cycle: BillingCycle, row: CycleUsage, name: str) -> NewEvent:
    owner = row.metered
    return NewEvent(
        account_id=owner.account_id,
        namespace_id=owner.namespace_id,
        namespace_slug=owner.namespace_slug,
        type=EVENT,
        data=_data(cycle, row, name),
        key=f"{EVENT}:{cycle.pk}:{owner.pk}",
    )


def _data(cycle: BillingCycle, row: CycleUsage, name: str) -> dict[str, Any]:
    units = units_of(row.cpu_time_ns, row.memory_mb_ms, row.disk_bytes, row.network_bytes)
    return {
        "namespace": row.metered.namespace_slug,
        "workspace_id": row.metered.workspace_id,
        "workspace_name": name,
        "period_start": _time(cycle.start),
        "period_end": _time(cycle.end),
        "credits_used": as_number(row.credits),
        "usage": {
            "cpu_time_minutes": float(units.cpu_time_minutes),
            "memory_gb_minutes": float(units.memory_gb_minutes),
            "disk_io_gb": float(units.disk_io_gb),
            "network_gb": float(units.network_gb),
        },
    }


def _time(seconds: int) -> str | None:
    moment: datetime = from_epoch(seconds)
    return iso(moment)
