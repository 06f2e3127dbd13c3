"""Times in rows that work waits for, and a clock that was set.

One rule for all of them. A time that lies further ahead than the longest that any code writes into its column was
written before the clock was set back, and counts as come. So a clock that was ahead, as it may be until the time is
set after a boot, delays work by that longest span at most, and no sweep has to correct rows. A clock that is set
forward lets times come early: leases end while their owners live, who learn it by `ClaimLost`.

Leases are written and compared by the database's clock alone (`leases`), so hosts whose clocks differ agree on them.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q
from django.db.models.functions import Now


def has_come(column: str, longest: timedelta) -> Q:
    """Return rows whose time in `column` has come, by the database's clock; none without a time. `longest`: more than
    what is written there, as clocks of hosts differ, and a statement may have waited for a lock since it read the time.
    """
    return Q(**{f"{column}__lte": Now()}) | Q(**{f"{column}__gt": Now() + longest})


def is_to_come(column: str, longest: timedelta) -> Q:
    """Return rows whose time in `column` is still to come; the opposite of `has_come` for rows that have a time."""
    return Q(**{f"{column}__gt": Now(), f"{column}__lte": Now() + longest})


def moment_has_come(moment: datetime, now: datetime, longest: timedelta) -> bool:
    """Return the same rule for a time that was read."""
    return not now < moment <= now + longest
