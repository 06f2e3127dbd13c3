"""Sweeps of what is due: permits and uploads that did not end, rejected files, and deletions.

Each may run at any time, in several processes, and be killed anywhere.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils import timezone

from accounts.models import Account
from accounts.services import account_lock
from cdn.errors import FileNotKept, PermitExpired
from cdn.models import File, Permit
from cdn.pools import Change
from cdn.services.files import purge_batch, rows_remove
from cdn.services.rejection import file_reject
from cdn.services.rows import account_of, lock_file, owner_of
from cdn.states import UPLOADABLE, FileStatus, PermitState
from common.errors import DomainError

logger = logging.getLogger(__name__)

BATCH = 200
# One run removes old rows for so long.
PRUNE_SECONDS = 20.0
PURGE_ROUNDS = 20
PRUNED = 5000
# A permit is kept for so long after its upload: a client whose last answer was lost asks how far the upload is.
CLOSED_FOR = timedelta(days=1)


def permits_expire() -> int:
    """Reject the files whose uploads did not end in time; bytes and credits are given back. Return how many."""
    _limit_times()
    due = Permit.objects.filter(state__in=UPLOADABLE, expires_at__lte=timezone.now()).order_by("expires_at")
    return sum(_expire(file_id) for file_id in list(due.values_list("pk", flat=True)[:BATCH]))


def _limit_times() -> None:
    """Limit times later than any that is given now: they were written before the clock was set back.

    They do not count as come, as other times do (`common.work.clock`): an upload that goes on would be lost.
    """
    now, env = timezone.now(), settings.ENV
    open_until = now + timedelta(seconds=env.cdn_permit_seconds)
    upload_until = now + timedelta(seconds=env.cdn_upload_seconds)
    rows = Permit.objects.filter(state__in=UPLOADABLE)
    rows.filter(upload_until=None, expires_at__gt=open_until).update(expires_at=open_until)
    begun = rows.filter(upload_until__isnull=False, expires_at__gt=upload_until)
    begun.update(expires_at=upload_until, upload_until=upload_until)


@transaction.atomic
def _expire(file_id: str) -> bool:
    try:
        _, file = lock_file(file_id, account_of(file_id))
    except FileNotKept:
        return False
    late = Permit.objects.filter(pk=file_id, state__in=UPLOADABLE, expires_at__lte=timezone.now())
    if file.status != FileStatus.UPLOADING or not late.exists():
        return False
    file_reject(file, PermitExpired())
    return True


def permits_prune() -> int:
    """Remove permits of files that were published long ago. Return how many."""
    old = Permit.objects.filter(state=PermitState.CLOSED, expires_at__lte=timezone.now() - CLOSED_FOR)
    found = list(
        old.filter(file__status__in=(FileStatus.ACTIVE, FileStatus.TRASHED)).values_list("pk", flat=True)[:5000]
    )
    return Permit.objects.filter(pk__in=found).delete()[0]


def rejected_prune() -> int:
    """Remove the rows of files that were rejected a day ago (a setting), as many as there is time for. Return how many.

    Nothing limits how many rejected files an account makes.
    """
    before = timezone.now() - timedelta(seconds=settings.ENV.cdn_rejected_seconds)
    end, removed = time.monotonic() + PRUNE_SECONDS, 0
    while time.monotonic() < end and (some := _rejected_batch(before)):
        removed += some
    return removed


def _rejected_batch(before: datetime) -> int:
    """Remove a batch of the account whose rejected file is the oldest."""
    due = File.objects.filter(status=FileStatus.REJECTED, rejected_at__lte=before).order_by("rejected_at")
    account_id = due.values_list("account_id", flat=True).first()
    return 0 if account_id is None else _remove_rejected(account_id, before)


@transaction.atomic
def _remove_rejected(account_id: str, before: datetime) -> int:
    account_lock(Account(pk=account_id))
    due = File.objects.filter(account_id=account_id, status=FileStatus.REJECTED, rejected_at__lte=before)
    rows = list(due.select_for_update(of=("self",)).order_by("rejected_at")[:BATCH])
    counts = Counter(owner_of(row) for row in rows)
    # Their bytes were removed when they were rejected.
    rows_remove(rows, {owner: Change(rejected_files=-count) for owner, count in counts.items()}, stored=False)
    return len(rows)


def purges_continue() -> int:
    """Remove files whose deletion was asked for by a request that did not end. Return how many."""
    accounts = File.objects.filter(purge=True).order_by().values_list("account_id", flat=True).distinct()
    return sum(_purge(account_id) for account_id in list(accounts[:PURGE_ROUNDS]))


def _purge(account_id: str) -> int:
    """Remove a batch of an account. If it cannot be removed, other accounts are not delayed."""
    try:
        return purge_batch(account_id)
    except (DatabaseError, DomainError, OSError):
        logger.exception("files of %s that are to be deleted could not be removed yet", account_id)
        return 0
