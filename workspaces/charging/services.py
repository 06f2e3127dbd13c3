"""Charging credits for what was metered: each record once, by the rates at its tick (wire contract, section 7).

The position and the entries commit together, so a pass that is repeated, killed or late charges nothing twice and
leaves nothing out. PostgreSQL numbers rows before they commit: a reader that goes by ids would skip a record whose
writer was slow. So the end is determined first, while no writer is in the middle of a transaction.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal

from django.db import OperationalError, connection, transaction
from django.db.models import Max
from django.utils import timezone

from credits.metered_charges import MeteredCharge, charges_write
from credits.models import Service
from credits.prices import PriceTable
from workspaces.charging.hours import count_by_hour
from workspaces.charging.records import COLUMNS, ChargedRecord, read_records
from workspaces.models import ChargePosition, MeterRecord

logger = logging.getLogger(__name__)

ONLY = 1  # the key of the one position
BATCH = 5000
MAX_BATCHES = 20
# Writers that come later wait behind the lock: a transaction that is stuck must not keep them for long.
LOCK_MILLISECONDS = 500


def charge_metered() -> int:
    """Charge the records that are not charged yet, some batches of them. Returns how many records.

    0 also where a writer's transaction is too slow to wait for: the next pass charges its records.
    """
    end = _safe_end()
    charged = 0
    for _ in range(MAX_BATCHES):
        done = _charge_batch(end) if end else 0
        charged += done
        if done < BATCH:
            break
    return charged


def _safe_end() -> int:
    """The highest id up to which every record is visible. 0: there is none, or a writer does not end in time."""
    try:
        with transaction.atomic():
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute(f"SET LOCAL lock_timeout = {LOCK_MILLISECONDS}")
                    # Conflicts with the lock of every INSERT; SQLite has one writer at a time anyway.
                    cursor.execute(f"LOCK TABLE {MeterRecord._meta.db_table} IN SHARE MODE")
            return MeterRecord.objects.aggregate(end=Max("id"))["end"] or 0
    except OperationalError as exc:
        logger.info("charging waits for a writer of usage: %s", exc)
        return 0


@transaction.atomic
def _charge_batch(end: int) -> int:
    """One transaction; of two passes at once the second waits, and then finds the first's position."""
    locked = ChargePosition.objects.select_for_update().filter(pk=ONLY)
    position = locked.first()
    if position is None:
        ChargePosition.objects.bulk_create([ChargePosition(pk=ONLY)], ignore_conflicts=True)
        position = locked.get()
    now = timezone.now()
    records = MeterRecord.objects.filter(id__gt=position.record_id, id__lte=end).order_by("id")
    rows = list(records.values_list(*COLUMNS)[:BATCH])
    if not rows:
        return 0
    charged = list(read_records(rows, PriceTable.load()))
    charges_write(_charges(charged), Service.SANDBOX, now)
    count_by_hour(charged, now)
    position.record_id = rows[-1][0]
    position.save(update_fields=["record_id"])
    return len(rows)


def _charges(records: Iterable[ChargedRecord]) -> list[MeteredCharge]:
    """The credits of each workspace in each namespace, without those that cost nothing."""
    sums: dict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
    for record in records:
        sums[record.account_id, record.namespace_id, record.workspace_id] += record.credits
    return [MeteredCharge(*owner, amount=sums[owner]) for owner in sorted(sums) if sums[owner]]
