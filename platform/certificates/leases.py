"""The lease of a certificate's row: one process carries out a step of it, however that process ends."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from certificates.models import Certificate, Status

# All requests of a step end within STEP_SECONDS, and the look at DNS before it is shorter; the rest is for writing.
STEP_SECONDS = 30.0
LEASE = timedelta(seconds=90)
# A lease that ends later was taken before the clock was set back, and counts as over.
LONGEST_LEASE = 2 * LEASE


class LeaseLost(Exception):
    """The row was removed, or another process carries it out; nothing was written."""


def unleased(now: datetime) -> Q:
    """Rows of which no process carries out a step."""
    return Q(lease_until=None) | Q(lease_until__lte=now) | Q(lease_until__gt=now + LONGEST_LEASE)


def due_ids(limit: int, without: Collection[str] = ()) -> list[str]:
    """Rows that are due and free, the longest due first, without those of some owners. One query by an index."""
    now = timezone.now()
    found = Certificate.objects.filter(unleased(now), due_at__lte=now).exclude(owner__in=without).order_by("due_at")
    return list(found.values_list("pk", flat=True)[:limit])


def owners_of(keys: Collection[str]) -> dict[str, str]:
    """Whose orders are limited together, by row; those that are there."""
    return dict(Certificate.objects.filter(pk__in=keys).values_list("pk", "owner")) if keys else {}


def lease_claim(key: str) -> Certificate | None:
    """The row with a lease of this process, by compare-and-set; None where it is not due, or another has it."""
    now, owner = timezone.now(), secrets.token_hex(16)
    free = Certificate.objects.filter(unleased(now), pk=key, due_at__lte=now)
    if not free.update(lease_owner=owner, lease_until=now + LEASE, heartbeat_at=now):
        return None
    return Certificate.objects.filter(pk=key, lease_owner=owner).select_related("account").first()


def leased_update(row: Certificate, **changes: Any) -> None:
    """Write to a row that this process has the lease of, and renew the lease. Raises LeaseLost."""
    now = timezone.now()
    mine = Certificate.objects.filter(pk=row.pk, lease_owner=row.lease_owner)
    if not mine.update(**changes, lease_until=now + LEASE, heartbeat_at=now):
        raise LeaseLost(row.name)
    for name, value in changes.items():
        setattr(row, name, value)


def lease_release(row: Certificate) -> None:
    """End the lease; the row is looked at again at its due time. Without effect where the lease is lost."""
    mine = Certificate.objects.filter(pk=row.pk, lease_owner=row.lease_owner)
    mine.update(due_at=due_time(row), lease_owner="", lease_until=None)


def due_time(row: Certificate) -> datetime:
    """When a row is to be looked at next."""
    if not row.wanted or row.announced != (row.status == Status.ACTIVE):
        return timezone.now()
    if row.status == Status.ACTIVE and row.expires_at is not None:
        return min(row.next_attempt_at, row.expires_at)
    return row.next_attempt_at
