"""From meters to the database: totals, the minutes of the series, what is billed; some machines in one transaction.

A row of totals holds the counters up to which it counts and the tick that wrote it, all in the same commit. So a
process that dies before the commit has counted nothing, and one that does not learn of its commit and writes the same
tick again changes nothing.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Mapping

from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
    close_old_connections,
    connection,
    connections,
    transaction,
)

from workspaces.models import MeterRecord, Usage, UsagePoint, Workspace
from workspaces.usage.amounts import SUMS, Amounts
from workspaces.usage.meter import Part
from workspaces.usage.tiers import MINUTES

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
# Ticks of one machine that wait for a database that does not answer; of more the oldest is given up.
MAX_WAITING = 15
MAX_TRIES = 3
STOP_SECONDS = 10.0

Parts = Mapping[str, Part]

_COUNTERS = ("cpu_time_ns", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")
_TOTALS = ("total_cpu_time_ns", "total_disk_read", "total_disk_write", "total_net_rx", "total_net_tx")
_METERED = ("account_id", "namespace_id", "workspace_id", "tick", "period_ms", "cpu_time_ns", "memory_mb_ms",
            "disk_bytes", "network_bytes")  # fmt: skip


def _sql_update() -> str:
    totals = ", ".join(f"{name} = {name} + %s" for name in _TOTALS)
    counters = ", ".join(f"{name} = %s" for name in _COUNTERS)
    return f"UPDATE {Usage._meta.db_table} SET {totals}, {counters}, run = %s, tick = %s WHERE id = %s"  # noqa: S608


def sql_points(*, adding: bool) -> str:
    """Insert buckets; one that is there already grows by the new sums (`adding`), or is replaced by them."""
    table = UsagePoint._meta.db_table
    columns = ("usage_id", "tier", "start", *SUMS)
    before = f"{table}.{{0}} + " if adding else ""
    changes = ", ".join(f"{name} = {before.format(name)}excluded.{name}" for name in SUMS)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"  # noqa: S608
        f" ON CONFLICT (tier, start, usage_id) DO UPDATE SET {changes}"
    )


def _sql_meter() -> str:
    columns, values = ", ".join(_METERED), ", ".join(["%s"] * len(_METERED))
    table = MeterRecord._meta.db_table
    return f"INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT (workspace_id, tick) DO NOTHING"  # noqa: S608


@transaction.atomic
def write(parts: Parts, tick: int) -> None:
    """Count these parts, once, however often it is called with the same tick. Raises DatabaseError; nothing is counted.

    Of a workspace that was deleted meanwhile only the billing is left to write.
    """
    rows = _rows(parts)
    fresh = {key: row for key, row in rows.items() if row.tick != tick}
    with connection.cursor() as cursor:
        if fresh:
            cursor.executemany(_sql_update(), [_changes(row, parts[key], tick) for key, row in fresh.items()])
        if points := [values for key, row in fresh.items() for values in _points(row, parts[key])]:
            cursor.executemany(sql_points(adding=True), points)
        new = [key for key in parts if key in fresh or key not in rows]
        if metered := [_metered(parts[key], tick) for key in new if _costs(parts[key])]:
            cursor.executemany(_sql_meter(), metered)


def _rows(parts: Parts) -> dict[str, Usage]:
    """The workspaces' rows, locked; made where a workspace has none yet."""
    held = Usage.objects.select_for_update().only("tick", "cleared", "workspace_id").order_by("pk")
    rows = {row.workspace_id: row for row in held.filter(workspace_id__in=list(parts))}
    missing = [key for key in parts if key not in rows]
    if missing:
        there = Workspace.objects.filter(pk__in=missing).values_list("pk", flat=True)
        Usage.objects.bulk_create([Usage(workspace_id=key) for key in there], ignore_conflicts=True)
        rows |= {row.workspace_id: row for row in held.filter(workspace_id__in=missing)}
    return rows


def _changes(row: Usage, part: Part, tick: int) -> tuple[int | str, ...]:
    totals = part.totals if row.cleared == part.entry.cleared else Amounts()
    sample = part.sample
    added = (getattr(totals, name) for name in _COUNTERS)
    return *added, *(getattr(sample, name) for name in _COUNTERS), sample.run[:64], tick, row.pk


def _points(row: Usage, part: Part) -> list[tuple[int, ...]]:
    if row.cleared != part.entry.cleared:
        return []
    return [(row.pk, MINUTES.number, point.start, *point.sums) for point in part.points]


def _costs(part: Part) -> bool:
    return bool(part.period_ms or any(getattr(part.billing, name) for name in _COUNTERS))


def _metered(part: Part, tick: int) -> tuple[int | str, ...]:
    entry, used = part.entry, part.billing
    return (
        entry.account_id,
        entry.namespace_id,
        entry.workspace_id,
        tick,
        part.period_ms,
        used.cpu_time_ns,
        part.memory_mb_ms,
        used.disk_read_bytes + used.disk_write_bytes,
        used.net_rx_bytes + used.net_tx_bytes,
    )


class Writer:
    """The thread that writes, so that a slow database delays no sample. `done` gets each tick with its machines."""

    def __init__(self) -> None:
        self.done: deque[tuple[int, Parts]] = deque()
        self._waiting: queue.Queue[tuple[int, Parts] | None] = queue.Queue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="usage-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, tick: int, parts: Parts) -> None:
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
                logger.error("usage of %d machines could not be written and is lost", len(parts))
            self.done.append((tick, parts))
        connections.close_all()

    def _written(self, tick: int, parts: Parts) -> bool:
        """False where it never will be: too much came after it, or it is wrong in itself."""
        tries = 0
        while not self._ended.is_set():
            tries += 1
            try:
                close_old_connections()
                write(parts, tick)
                return True
            except (OperationalError, InterfaceError) as exc:
                if tries == 1:
                    logger.warning("usage waits for the database: %s", exc)
                if self._waiting.qsize() >= MAX_WAITING:
                    return False
            except DatabaseError:
                # A workspace that was deleted within the transaction; it is not there the next time.
                logger.warning("usage", exc_info=True)
                if tries >= MAX_TRIES:
                    return False
            self._ended.wait(RETRY_SECONDS)
        return False
