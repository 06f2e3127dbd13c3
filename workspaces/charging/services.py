"""Charging credits for metered usage: each record once, by the rates at its tick (wire contract, section 7).

The position and the entries commit together, so a pass that is repeated, killed or late charges nothing twice and
leaves nothing out. Rows are numbered before they commit: a reader that goes by ids would skip a record whose writer was
slow. So the end is determined first, while no writer is in the middle of a transaction.
"""

from __future__ import annotations

import logging
import time

from django.db import OperationalError, connection, transaction
from django.db.models import Max
from django.utils import timezone

from common.bulk_rows import read_rows
from credits.metered_charges import write_charges
from credits.models import Service
from credits.prices import PriceTable
from workspaces.charging.cycles import CYCLE, current_cycle
from workspaces.charging.hours import counted_from, write_sums
from workspaces.charging.position import lock_position
from workspaces.charging.record_writers import RECORD_WRITERS
from workspaces.charging.records import COLUMNS, sum_records
from workspaces.models import MeterRecord

logger = logging.getLogger(__name__)

BATCH = 5000
MAX_BATCHES = 20
# Writers that come later wait behind the lock: a transaction that is stuck must not keep them for long.
LOCK_MILLISECONDS = 500
# A batch that waited longer for locks is given up: reports of past times would wait for it (`finished`).
MAX_SECONDS = 40.0


class _TooSlow(Exception):
    """Sign that the batch is rolled back; the next pass repeats it."""


def charge_metered() -> int:
    """Charge the records that are not charged yet, some batches of them. Return how many records.

    Return 0 also if a writer's transaction is too slow to wait for: the next pass charges its records.
    """
    end = _safe_end()
    charged = 0
    try:
        for _ in range(MAX_BATCHES):
            done = _charge_batch(end) if end else 0
            charged += done
            if done < BATCH:
                break
    except _TooSlow:
        logger.warning("a pass of charging waited for more than %.0f s, and is repeated", MAX_SECONDS)
    return charged


def _safe_end() -> int:
    """Return the highest id up to which every record is visible. Return 0 if there is none, or if a writer does not end
    in time.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {LOCK_MILLISECONDS}")
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [RECORD_WRITERS])
            return MeterRecord.objects.aggregate(end=Max("id"))["end"] or 0
    except OperationalError as exc:
        logger.info("charging waits for a writer of usage: %s", exc)
        return 0


@transaction.atomic
def _charge_batch(end: int) -> int:
    """Charge one batch in one transaction. If two passes run at once, the second waits and then finds the first's
    position.
    """
    position = lock_position()
    now, begun = timezone.now(), time.monotonic()
    records = MeterRecord.objects.filter(id__gt=position.record_id, id__lte=end).order_by("id")
    rows = read_rows(records.values_list(*COLUMNS)[:BATCH])
    if not rows:
        return 0
    position.record_id = rows[-1][0]
    position.counted_from = counted_from(position, now)
    sums = sum_records(rows, PriceTable.load(), position.counted_from)
    write_charges(sums.charges(), Service.SANDBOX, now)
    write_sums(sums, current_cycle(position, now))
    position.save(update_fields=["record_id", "counted_from", *CYCLE])
    if time.monotonic() - begun > MAX_SECONDS:
        raise _TooSlow
    return len(rows)
