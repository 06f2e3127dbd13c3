"""Whether what was charged is what the metering records and the rates give."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal

from django.db.models import Sum

from credits.metered_charges import DESCRIPTION
from credits.models import Entry, Service
from credits.prices import PriceTable
from workspaces.charging.services import ONLY
from workspaces.models import ChargePosition, MeterRecord

Place = tuple[str, str]  # namespace, workspace
_COLUMNS = ("tick", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes")


def charge_drifts() -> Iterator[str]:
    """A sentence for each workspace that was charged another amount than its charged records cost."""
    expected, charged = _from_records(), _from_entries()
    for namespace, workspace in sorted(expected.keys() | charged.keys()):
        found, wanted = charged[namespace, workspace], expected[namespace, workspace]
        if found != wanted:
            yield f"{workspace} in {namespace}: charged {found:f}, and its records cost {wanted:f}"


def _from_records() -> dict[Place, Decimal]:
    position = ChargePosition.objects.filter(pk=ONLY).first() or ChargePosition()
    rows = MeterRecord.objects.filter(id__gt=position.first_record_id, id__lte=position.record_id).order_by("id")
    prices, sums = PriceTable.load(), defaultdict[Place, Decimal](Decimal)
    columns = rows.values_list("metered__namespace_id", "metered__workspace_id", *_COLUMNS)
    for namespace, workspace, *amounts in columns.iterator(chunk_size=5000):
        sums[namespace, workspace] += prices.price(*amounts)
    return sums


def _from_entries() -> dict[Place, Decimal]:
    rows = Entry.objects.filter(balance__service=Service.SANDBOX, description=DESCRIPTION).order_by()
    sums = defaultdict[Place, Decimal](Decimal)
    for namespace, workspace, amount in rows.values_list("balance__namespace_id", "workspace_id").annotate(
        sum=Sum("amount")
    ):
        sums[namespace, workspace] = amount
    return sums
