"""Rule when a range of reports is over for good.

A pass counts nothing before the position's `counted_from`, which never decreases while clocks run: a range that ended
before it is over. A range that ended ten minutes ago is over as well, unless a pass that began before that is still
about to commit: its transaction has the position's lock, and a reader that takes the lock after it sees everything it
wrote.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection, transaction
from django.utils import timezone

from common.times import EPOCH
from workspaces.charging.position import lock_position, read_position

FINISHED = timedelta(minutes=10)
# A pass whose commit takes longer is a failure of the database, and the report is answered with 503.
WAIT_SECONDS = 15


def await_finished(end: int) -> None:
    """Wait until the sums up to `end` (microseconds) are final, if `end` is at least ten minutes ago. Call it before
    reading them.

    One query while passes go on. Otherwise this takes the position's lock, and so waits for a pass that is about to
    commit. Raise OperationalError after some seconds.
    """
    if end > _microseconds(timezone.now() - FINISHED) or end <= read_position().counted_from:
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'")
        lock_position()


def _microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)
