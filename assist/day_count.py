"""Count of an account's calls on a UTC day: one row, changed by single statements, so that of any number of calls at
once no more succeed than are left. Redis is not asked.
"""

from __future__ import annotations

from datetime import date, timedelta

from django.db import connection
from django.db.models import F
from django.utils import timezone

from accounts.models import Account
from assist.errors import DayQuotaExceeded
from assist.models import DayCount
from assist.rate_headers import DayState, today

# This is longer than any clock is set back. The rows are few: one for each account and day with calls.
KEPT_FOR = timedelta(days=62)
_COUNT = f"""
INSERT INTO {DayCount._meta.db_table} AS counted (account_id, day, used) VALUES (%s, %s, 1)
ON CONFLICT (account_id, day) DO UPDATE SET used = counted.used + 1 WHERE counted.used < %s
RETURNING used
"""  # noqa: S608


def day_state(account: Account) -> DayState:
    """Return the account's count of today. One query."""
    day = today()
    used = DayCount.objects.filter(account=account, day=day).values_list("used", flat=True).first()
    return DayState(day, account.plan.assist_calls_per_day, used or 0)


def call_count(account: Account) -> DayState:
    """Count one call, in the caller's transaction. Raise DayQuotaExceeded; nothing is counted then."""
    day, limit = today(), account.plan.assist_calls_per_day
    if limit > 0:
        with connection.cursor() as cursor:
            # The driver knows the type of a date; the row is made by the first call of the day.
            cursor.execute(_COUNT, [account.pk, connection.ops.adapt_datefield_value(day), limit])
            found = cursor.fetchone()
        if found is not None:
            return DayState(day, limit, found[0])
    raise DayQuotaExceeded(DayState(day, limit, limit))


def call_uncount(account_id: str, day: date) -> None:
    """Give a call back, to the day on which it counted, in the caller's transaction."""
    DayCount.objects.filter(account=account_id, day=day, used__gt=0).update(used=F("used") - 1)


def prune_days() -> int:
    """Remove the counts of days long ago. Return how many."""
    return DayCount.objects.filter(day__lt=timezone.now().date() - KEPT_FOR).delete()[0]
