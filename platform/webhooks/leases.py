"""The lease of a delivery: one process makes an attempt of it, until the lease is over however that process ends."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

# An attempt of 15 s, and as long for writing what came of it.
LEASE = timedelta(seconds=30)
# A lease that ends later was taken before the clock was set back, and counts as over. Twice as long, as the clock of
# another process, read at another moment or on another host, may be ahead.
LONGEST_LEASE = 2 * LEASE


def unleased(now: datetime) -> Q:
    """Deliveries of which no process makes an attempt."""
    return Q(lease_until=None) | Q(lease_until__lte=now) | Q(lease_until__gt=now + LONGEST_LEASE)


def leased(now: datetime) -> Q:
    """The others; also those of a process that died, until their leases are over."""
    return Q(lease_until__gt=now, lease_until__lte=now + LONGEST_LEASE)
