"""From meters to the database: totals, the minutes of the series, what is billed; some machines in one transaction.

A row of totals holds the counters up to which it counts and the tick that wrote it, all in the same commit. So a
process that dies before the commit has counted nothing, one that does not learn of its commit and writes the same tick
again changes nothing, and a part that does not begin where the row ends is counted from the row.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
    close_old_connections,
    connection,
    connections,
    transaction,
)

from workspaces.host.metering.meter import MeterTarget, UsageDelta
from workspaces.host.metering.roster import row_sample
from workspaces.models import Metered, MeterRecord, Usage, Workspace
from workspaces.usage.amounts import Amounts, amounts_between
from workspaces.usage.buckets import newest_bucket, sql_points
from workspaces.usage.tiers import MINUTES, STORED

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
MAX_TRIES = 3
STOP_SECONDS = 10.0

COARSER = STORED[1:]

Deltas = Mapping[str, UsageDelta]

_COUNTERS = ("cpu_time_ns", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")
_TOTALS = ("total_cpu_time_ns", "total_disk_read", "total_disk_write", "total_net_rx", "total_net_tx")
_METERED = ("metered_id", "period_ms", "tick", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes")


def _sql_update() -> str:
    totals = ", ".join(f"{name} = {name} + %s" for name in _TOTALS)
    counters = ", ".join(f"{name} = %s" for name in _COUNTERS)
    return f"UPDATE {Usage._meta.db_table} SET {totals}, {counters}, generation = %s, tick = %s WHERE id = %s"  # noqa: S608


def _sql_meter() -> str:
    columns, values = ", ".join(_METERED), ", ".join(["%s"] * len(_METERED))
    table = MeterRecord._meta.db_table
    return f"INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT (metered_id, tick) DO NOTHING"  # noqa: S608


@transaction.atomic
def write_deltas(parts: Deltas, tick: int) -> None:
    """Count these parts, once, however often it is called with the same tick. Raises DatabaseError; nothing is counted.

    Of a workspace that was deleted meanwhile only the billing is left to write.
    """
    rows = _rows(parts)
    fresh = {key: row for key, row in rows.items() if row.tick != tick}
    parts = {key: _from_row(fresh[key], part) if key in fresh else part for key, part in parts.items()}
    costly = {key: part for key, part in parts.items() if (key in fresh or key not in rows) and _costs(part)}
    ids = _metered_ids(part.entry for part in costly.values())
    with connection.cursor() as cursor:
        if fresh:
            cursor.executemany(_sql_update(), [_changes(row, parts[key], tick) for key, row in fresh.items()])
        made = _made() if any(part.points for part in parts.values()) else []
        if points := [values for key, row in fresh.items() for values in _points(row, parts[key], made)]:
            cursor.executemany(sql_points(adding=True), points)
        if costly:
            cursor.executemany(_sql_meter(), [_metered(ids[_who(part.entry)], part, tick) for part in costly.values()])


def _rows(parts: Deltas) -> dict[str, Usage]:
    """The workspaces' rows, locked; made where a workspace has none yet."""
    held = (
        Usage.objects.select_for_update()
        .only("tick", "reset_count", "workspace_id", "generation", *_COUNTERS)
        .order_by("pk")
    )
    rows = {row.workspace_id: row for row in held.filter(workspace_id__in=list(parts))}
    missing = [key for key in parts if key not in rows]
    if missing:
        there = Workspace.objects.filter(pk__in=missing).values_list("pk", flat=True)
        Usage.objects.bulk_create([Usage(workspace_id=key) for key in there], ignore_conflicts=True)
        rows |= {row.workspace_id: row for row in held.filter(workspace_id__in=missing)}
    return rows


def _from_row(row: Usage, part: UsageDelta) -> UsageDelta:
    """The part, or where a tick before it was given up or another process wrote: what was used since the row's own
    counters, so that nothing is lost and nothing counts twice.
    """
    if row.tick == part.after:
        return part
    used = amounts_between(row_sample(row), part.sample)
    return replace(part, billing=used, totals=used if part.entry.tracking else Amounts())


def _changes(row: Usage, part: UsageDelta, tick: int) -> tuple[int | str, ...]:
    totals = part.totals if row.reset_count == part.entry.reset_count else Amounts()
    sample = part.sample
    added = (getattr(totals, name) for name in _COUNTERS)
    return *added, *(getattr(sample, name) for name in _COUNTERS), sample.generation[:64], tick, row.pk


def _made() -> list[int]:
    """Where the newest buckets of the coarser tiers begin, as far as those have any. Under the lock of the rows: what
    is made of these rows beyond that is made after this commit.
    """
    starts, now = [], time.time()
    for tier in COARSER:
        start = newest_bucket(tier, now)
        if start is None:
            break
        starts.append(start)
    return starts


def _points(row: Usage, part: UsageDelta, made: Sequence[int]) -> list[tuple[int, ...]]:
    """A minute, and of one that comes late all buckets that were made without it: they may not be made again."""
    if row.reset_count != part.entry.reset_count:
        return []
    found = []
    for point in part.points:
        found.append((row.pk, MINUTES.number, point.start, *point.sums))
        for tier, last in zip(COARSER, made, strict=False):
            if tier.floor(point.start) > last:
                break
            found.append((row.pk, tier.number, tier.floor(point.start), *point.sums))
    return found


def _costs(part: UsageDelta) -> bool:
    return bool(part.period_ms or any(getattr(part.billing, name) for name in _COUNTERS))


def _who(entry: MeterTarget) -> tuple[str, str, str]:
    return entry.workspace_id, entry.namespace_id, entry.account_id


def _metered_ids(entries: Iterable[MeterTarget]) -> dict[tuple[str, str, str], int]:
    """Whose use it is, by id; made where it was never metered before. One query where all are known."""
    wanted = sorted(_who(entry) for entry in entries)
    known = Metered.objects.filter(workspace_id__in=[who[0] for who in wanted])
    found = {(row.workspace_id, row.namespace_id, row.account_id): row.pk for row in known}
    if all(who in found for who in wanted):
        return found
    new = [Metered(workspace_id=one, namespace_id=two, account_id=three) for one, two, three in wanted]
    Metered.objects.bulk_create(new, ignore_conflicts=True)
    return {(row.workspace_id, row.namespace_id, row.account_id): row.pk for row in known.all()}


def _metered(metered_id: int, part: UsageDelta, tick: int) -> tuple[int, ...]:
    used = part.billing
    return (
        metered_id,
        part.period_ms,
        tick,
        used.cpu_time_ns,
        part.memory_mb_ms,
        used.disk_read_bytes + used.disk_write_bytes,
        used.net_rx_bytes + used.net_tx_bytes,
    )


class UsageWriter:
    """The thread that writes, so that a slow database delays no sample. `done` gets each tick with its machines."""

    def __init__(self) -> None:
        self.done: deque[tuple[int, Deltas]] = deque()
        self._waiting: queue.Queue[tuple[int, Deltas] | None] = queue.Queue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="usage-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def behind(self) -> bool:
        """Something waits for a database that does not answer: what is measured meanwhile is better kept together."""
        return not self._waiting.empty()

    def put(self, tick: int, parts: Deltas) -> None:
        self._waiting.put((tick, parts))

    def stop(self) -> None:
        """Write what waits, as far as it can be written within a few seconds."""
        self._waiting.put(None)
        self._thread.join(STOP_SECONDS)
        self._ended.set()

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            tick, parts = item
            if not self._written(tick, parts):
                logger.error(
                    "a tick of %d machines could not be written; the next one counts from before it", len(parts)
                )
            self.done.append((tick, parts))
        connections.close_all()

    def _written(self, tick: int, parts: Deltas) -> bool:
        """False where it never will be: the process ends, or it is wrong in itself."""
        tries = 0
        while not self._ended.is_set():
            tries += 1
            try:
                close_old_connections()
                write_deltas(parts, tick)
                return True
            except (OperationalError, InterfaceError) as exc:
                if tries == 1:
                    logger.warning("usage waits for the database: %s", exc)
            except DatabaseError:
                # A workspace that was deleted within the transaction; it is not there the next time.
                logger.warning("usage", exc_info=True)
                if tries >= MAX_TRIES:
                    return False
            self._ended.wait(RETRY_SECONDS)
        return False
