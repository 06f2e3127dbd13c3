"""Charging credits for snapshots: what they occupy, by the GB-hour, until they are deleted.

A charge and the time up to which it goes commit together, so that a pass that is repeated or killed charges nothing
twice. The rate is that of the begin of the span, which is an hour at most while a worker runs.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from credits.amounts import MAX_CREDITS, PLACES
from credits.entries import Purpose
from credits.ledger import credits_charge
from credits.models import Service, Unit
from credits.services import Rates
from namespaces.models import Namespace
from workspaces.models import Snapshot

SPAN = timedelta(hours=1)
BATCH = 500
GB_SECONDS = Decimal(10**9 * 3600)


def charge_due_snapshots() -> int:
    """Charge the snapshots that were not charged for an hour. Return how many."""
    now = timezone.now()
    due = Snapshot.objects.filter(charged_until__lte=now - SPAN).order_by("charged_until")
    rates = Rates.load()
    return sum(_charge(key, now, rates) for key in list(due.values_list("pk", flat=True)[:BATCH]))


def charge_rest(snapshot_id: str) -> None:
    """Charge a deleted snapshot up to its deletion, in the caller's transaction."""
    _charge(snapshot_id, timezone.now(), Rates.load())


@transaction.atomic
def remove_charged(snapshot_id: str) -> None:
    """Charge a deleted snapshot up to its deletion, and remove its row; nothing is left of its files."""
    charge_rest(snapshot_id)
    Snapshot.objects.filter(pk=snapshot_id).delete()


def remove_gone_snapshots() -> int:
    """Remove the rows of snapshots whose files a host with credentials of its own has removed. Return how many."""
    gone = Snapshot.objects.filter(removed_at__isnull=False).values_list("pk", flat=True)
    for key in (found := list(gone[:BATCH])):
        remove_charged(key)
    return len(found)


@transaction.atomic
def _charge(snapshot_id: str, now: datetime, rates: Rates) -> bool:
    """Charge one snapshot up to `now`, or to its deletion. Return False if there is nothing to charge."""
    rows = Snapshot.objects.select_for_update(of=("self",)).filter(pk=snapshot_id, charged_until__isnull=False)
    row = rows.only("account_id", "namespace_id", "workspace_id", "size_bytes", "charged_until", "deleted_at").first()
    if row is None or row.charged_until is None:
        return False
    until = min(now, row.deleted_at or now)
    seconds = int((until - row.charged_until).total_seconds())
    if seconds <= 0:
        return False
    rate = rates.credits(Unit.SNAPSHOT_GB_HOUR, row.charged_until)
    amount = min(Decimal(row.size_bytes) * seconds / GB_SECONDS * rate, MAX_CREDITS).quantize(PLACES)
    end = row.charged_until + timedelta(seconds=seconds)
    if amount:
        purpose = Purpose(
            key=f"snapshot:{row.pk}:{int(end.timestamp())}",
            workspace_id=row.workspace_id or "",
            description=f"Snapshot: {row.pk}",
        )
        payer = Namespace(pk=row.namespace_id, account_id=row.account_id)
        credits_charge(namespace=payer, service=Service.SANDBOX, amount=amount, purpose=purpose)
    Snapshot.objects.filter(pk=row.pk).update(charged_until=end)
    return True
