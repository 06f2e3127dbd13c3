"""Rows that were written while the clock of this host was ahead, as it is until the time is set after a start."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q
from django.utils import timezone

from certificates.leases import LONGEST_LEASE, unleased
from certificates.models import Certificate
from certificates.outcomes import renewal_time


def clock_follow() -> int:
    """Rows that were written while the clock was ahead are due as they would be had it been right. Returns how many.

    Without it a name would wait for as long as the clock was ahead: a pause of a minute became one of a month.
    """
    now = timezone.now()
    late = now + LONGEST_LEASE
    written = Q(heartbeat_at__gt=late) | Q(heartbeat_at=None, due_at__gt=late)
    ahead = Certificate.objects.filter(written, unleased(now)).defer("key", "order_key")
    for row in ahead:
        began = row.order_began_at and min(row.order_began_at, now)
        changes = {"next_attempt_at": _next_of(row, now), "order_began_at": began, "heartbeat_at": now, "due_at": now}
        Certificate.objects.filter(written, unleased(now), pk=row.pk).update(**changes)
    return len(ahead)


def _next_of(row: Certificate, now: datetime) -> datetime:
    """A certificate without a failed renewal is renewed in its time, everything else is tried again."""
    if row.not_before is None or row.expires_at is None or row.error or row.order_url or row.order_began_at:
        return now
    return min(row.next_attempt_at, renewal_time(row.not_before, row.expires_at, now))
