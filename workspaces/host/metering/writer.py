"""Writing deltas of meters: totals, minutes of the series and metering records; some machines in one transaction.

A row of totals is written with the counters up to which it counts and with the tick, in one commit. So a process that
dies before the commit has counted nothing, a tick that is written again changes nothing, and a delta that does not
begin where the row ends is replaced by the difference to the row's counters.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from django.db import (
    DatabaseError,
    DataError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    close_old_connections,
    connection,
    connections,
    transaction,
)

from common.confinement import confined_host_id
from vmbackend.services import is_host_gone
from workspaces.charging.wakeups import ChargeNotifier
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
def write_deltas(deltas: Deltas, tick: int) -> None:
    """Count these deltas. Idempotent for a tick. Raise DatabaseError; nothing is counted then.

    For a workspace that has been deleted, only the metering record is written.
    """
    rows = _rows(deltas)
    fresh = {key: row for key, row in rows.items() if row.tick != tick}
    deltas = {key: _from_row(fresh[key], delta, tick) if key in fresh else delta for key, delta in deltas.items()}
    billable = {
        key: delta for key, delta in deltas.items() if (key in fresh or key not in rows) and _is_billable(delta)
    }
    ids = _metered_ids([delta.target for delta in billable.values()])
    with connection.cursor() as cursor:
        if changes := [
            _changes(row, deltas[key], tick) for key, row in fresh.items() if not _is_late(row, deltas[key], tick)
        ]:
            cursor.executemany(_sql_update(), changes)
        made = _newest_coarse_buckets() if any(delta.points for delta in deltas.values()) else []
        if points := [values for key, row in fresh.items() for values in _points(row, deltas[key], made)]:
            cursor.executemany(sql_points(adding=True), points)
        if billable:
            cursor.executemany(
                _sql_meter(), [_metered(ids[_owner_key(delta.target)], delta, tick) for delta in billable.values()]
            )


def _rows(deltas: Deltas) -> dict[str, Usage]:
    """Return the workspaces' rows, locked. A row is created if a workspace has none yet."""
    locked = (
        Usage.objects.select_for_update()
        .only("tick", "reset_count", "workspace_id", "generation", *_COUNTERS)
        .order_by("pk")
    )
    rows = {row.workspace_id: row for row in locked.filter(workspace_id__in=list(deltas))}
    missing = [key for key in deltas if key not in rows]
    if missing:
        existing = Workspace.objects.filter(pk__in=missing).values_list("pk", flat=True)
        Usage.objects.bulk_create([Usage(workspace_id=key) for key in existing], ignore_conflicts=True)
        rows |= {row.workspace_id: row for row in locked.filter(workspace_id__in=missing)}
    return rows


def _from_row(row: Usage, delta: UsageDelta, tick: int) -> UsageDelta:
    """Return the delta. If a tick before it was given up, or another process wrote, return the difference to the row's
    counters instead, so that nothing is lost and nothing counts twice.
    """
    if row.tick == delta.after:
        return delta
    used = Amounts() if _is_late(row, delta, tick) else amounts_between(row_sample(row), delta.sample)
    return replace(delta, billing=used, totals=used if delta.target.tracking else Amounts())


def _is_late(row: Usage, delta: UsageDelta, tick: int) -> bool:
    """Return whether the row counts later samples already: a former vmhost's commit comes after the next one's.

    The tick decides, and within the same process also the counters, as a clock may have been set back.
    """
    before, now = row_sample(row), delta.sample
    if before is None or row.tick == delta.after or tick > row.tick:
        return False
    grown = any(getattr(now, name) > getattr(before, name) for name in _COUNTERS)
    return before.generation != now.generation or not grown


def _changes(row: Usage, delta: UsageDelta, tick: int) -> tuple[int | str, ...]:
    totals = delta.totals if row.reset_count == delta.target.reset_count else Amounts()
    sample = delta.sample
    added = (getattr(totals, name) for name in _COUNTERS)
    return *added, *(getattr(sample, name) for name in _COUNTERS), sample.generation[:64], tick, row.pk


def _newest_coarse_buckets() -> list[int]:
    """Return the starts of the newest buckets of the coarser tiers that have any. Read them under the lock of the rows:
    later buckets are computed from these rows after this commit.
    """
    starts, now = [], time.time()
    for tier in COARSER:
        start = newest_bucket(tier, now)
        if start is None:
            break
        starts.append(start)
    return starts


def _points(row: Usage, delta: UsageDelta, made: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the buckets to add: the minutes, and for late minutes the coarser buckets that were computed
    without them.
    """
    if row.reset_count != delta.target.reset_count:
        return []
    found = []
    for point in delta.points:
        found.append((row.pk, MINUTES.number, point.start, *point.sums))
        for tier, last in zip(COARSER, made, strict=False):
            if tier.floor(point.start) > last:
                break
            found.append((row.pk, tier.number, tier.floor(point.start), *point.sums))
    return found


def _is_billable(delta: UsageDelta) -> bool:
    return bool(delta.period_ms or any(getattr(delta.billing, name) for name in _COUNTERS))


def _owner_key(target: MeterTarget) -> tuple[str, str, str]:
    return target.workspace_id, target.namespace_id, target.account_id


def _new_metered(target: MeterTarget) -> Metered:
    return Metered(
        workspace_id=target.workspace_id,
        namespace_id=target.namespace_id,
        account_id=target.account_id,
        workspace_name=target.name,
        namespace_slug=target.namespace_slug,
        host_id=confined_host_id() or "",
    )


def _metered_ids(targets: Collection[MeterTarget]) -> dict[tuple[str, str, str], int]:
    """Return the ids of the rows of Metered; missing ones are created. One query if all exist."""
    wanted = sorted(_owner_key(target) for target in targets)
    known = Metered.objects.filter(workspace_id__in=[key[0] for key in wanted])
    _take_over(list(known))
    found = {(row.workspace_id, row.namespace_id, row.account_id): row.pk for row in known}
    missing = [target for target in sorted(targets, key=_owner_key) if _owner_key(target) not in found]
    if not missing:
        return found
    new = [_new_metered(target) for target in missing]
    Metered.objects.bulk_create(new, ignore_conflicts=True)
    return {(row.workspace_id, row.namespace_id, row.account_id): row.pk for row in known.all()}


def _take_over(known: list[Metered]) -> None:
    """Note that this host writes the records of workspaces that were on another one."""
    host = confined_host_id()
    if host and (others := [row.pk for row in known if row.host_id != host]):
        Metered.objects.filter(pk__in=others).update(host_id=host)


def _metered(metered_id: int, delta: UsageDelta, tick: int) -> tuple[int, ...]:
    used = delta.billing
    return (
        metered_id,
        delta.period_ms,
        tick,
        used.cpu_time_ns,
        delta.memory_mb_ms,
        used.disk_read_bytes + used.disk_write_bytes,
        used.net_rx_bytes + used.net_tx_bytes,
    )


class UsageWriter:
    """The thread that writes, so that a slow database delays no sample. `finished` gets each tick with its deltas.

    After each commit the worker is notified, which charges the metered usage. Nothing is written of
    a host that was given up: its workspaces are lost, and nothing of them is charged afterwards.
    """

    def __init__(self, host_id: str = "") -> None:
        self._host_id = host_id
        self.finished: deque[tuple[int, Deltas]] = deque()
        self._waiting: queue.Queue[tuple[int, Deltas] | None] = queue.Queue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="usage-writer", daemon=True)
        self._notifier = ChargeNotifier()

    def start(self) -> None:
        self._notifier.start()
        self._thread.start()

    @property
    def is_behind(self) -> bool:
        """Return whether deltas wait for a database that does not answer. Usage that is metered until then is better
        written together.
        """
        return not self._waiting.empty()

    def submit(self, tick: int, deltas: Deltas) -> None:
        self._waiting.put((tick, deltas))

    def stop(self) -> None:
        """Write the waiting deltas as far as a few seconds allow, and end the thread."""
        self._waiting.put(None)
        self._thread.join(STOP_SECONDS)
        self._ended.set()
        self._notifier.stop()

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            tick, deltas = item
            if not self._write(tick, deltas):
                logger.error(
                    "a tick of %d machines was not written completely; the next tick counts the rest", len(deltas)
                )
            self.finished.append((tick, deltas))
        connections.close_all()

    def _write(self, tick: int, deltas: Deltas) -> bool:
        """Write the deltas. Return False if something is given up: the process ends, or the database refuses it. A
        machine whose numbers no column holds does not keep others from being counted. No failure ends the thread.
        """
        try:
            return self._write_together(tick, deltas)
        except (DataError, ProgrammingError):
            if len(deltas) > 1:
                # Each is tried: `all` would end with the first that is refused.
                written = [self._write(tick, {key: delta}) for key, delta in deltas.items()]
                return all(written)
            logger.exception("the usage of %s is refused: too large, or no longer of a machine of this host", *deltas)
        except Exception:
            logger.exception("a tick of usage could not be written")
        return False

    def _write_together(self, tick: int, deltas: Deltas) -> bool:
        """Write the deltas in one transaction, with retries. Raise DataError, ProgrammingError."""
        tries = 0
        while not self._ended.is_set():
            tries += 1
            try:
                close_old_connections()
                if self._host_id and is_host_gone(self._host_id):
                    logger.warning("a tick of %d machines is not counted: this host was given up", len(deltas))
                    return True
                write_deltas(deltas, tick)
                self._notifier.notify()
                return True
            except (OperationalError, InterfaceError) as exc:
                if tries == 1:
                    logger.warning("writing usage waits for the database: %s", exc)
            except (DataError, ProgrammingError):
                raise
            except DatabaseError:
                # A workspace was deleted during the transaction; the next attempt does not find its row.
                logger.warning("an attempt to write usage failed", exc_info=True)
                if tries >= MAX_TRIES:
                    return False
            self._ended.wait(RETRY_SECONDS)
        return False
