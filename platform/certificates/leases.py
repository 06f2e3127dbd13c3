"""Which certificates are due, and the lease under which one process carries out a step of one."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from certificates.models import Certificate, Status
from common.work.leases import Lease, new_claim, release_row

# All requests of a step end within STEP_SECONDS, and the look at DNS before it is shorter; the rest is for writing.
STEP_SECONDS = 30.0
LEASE = Lease(timedelta(seconds=90))
# The longest that a CA may have a row wait; of what waits for longer see `limit_waits`.
LONGEST_CA_PAUSE = timedelta(days=2)
# A renewal that nothing has delayed waits for longer than any pause, until the time of its certificate.
_IN_TIME = Q(status=Status.ACTIVE, error="", order_key=None, order_began_at=None)


def due_ids(limit: int, without: Collection[str] = ()) -> list[str]:
    """Return rows that are due and free, the longest due first, without those of some owners. One query by an index."""
    due = Certificate.objects.filter(LEASE.free(), due_at__lte=timezone.now())
    return list(due.exclude(owner__in=without).order_by("due_at").values_list("pk", flat=True)[:limit])


def owners_of(keys: Collection[str]) -> dict[str, str]:
    """Return the owner of each row that exists; the orders of one owner are limited together."""
    return dict(Certificate.objects.filter(pk__in=keys).values_list("pk", "owner")) if keys else {}


def claim_lease(key: str) -> Certificate | None:
    """Return the row with a lease of this process, by compare-and-set; None if it is not due, or another has it."""
    claim = new_claim()
    if not LEASE.claim_rows(Certificate.objects.filter(pk=key, due_at__lte=timezone.now()), claim):
        return None
    return Certificate.objects.filter(pk=key, claim=claim).select_related("account").first()


def release_lease(row: Certificate) -> None:
    """End the lease; the row is looked at again at its due time. Without effect if the lease is lost."""
    release_row(row, due_at=due_time(row))


def due_time(row: Certificate) -> datetime:
    """Return when a row is to be looked at next."""
    if not row.wanted or row.announced != (row.status == Status.ACTIVE):
        return timezone.now()
    if row.status == Status.ACTIVE and row.expires_at is not None:
        return min(row.next_attempt_at, row.expires_at)
    return row.next_attempt_at


def limit_waits() -> int:
    """Make rows due now that would wait for longer than any pause lasts: their times were written before the
    clock was set back (`common.work.clock`). Return how many.
    """
    late = Certificate.objects.exclude(_IN_TIME).filter(LEASE.free(), due_at__gt=Now() + LONGEST_CA_PAUSE)
    return late.update(due_at=Now(), next_attempt_at=Now())
