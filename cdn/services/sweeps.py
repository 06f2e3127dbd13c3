"""What is due at a time: permits and uploads that did not end, rejected files, deletions, and bytes of no row. Each may
run at any time, in several processes, and be killed anywhere.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import transaction
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

BATCH = 200
PURGE_ROUNDS = 20
PRUNED = 5000
# Of an upload that has ended: a client whose last answer was lost asks how far it is.
CLOSED_FOR = timedelta(days=1)


def permits_expire() -> int:
    """Reject the files whose uploads did not end in time; bytes and credits are given back. Returns how many."""
    due = Permit.objects.filter(state__in=UPLOADABLE, expires_at__lte=timezone.now()).order_by("expires_at")
    return sum(_expire(file_id) for file_id in list(due.values_list("pk", flat=True)[:BATCH]))


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
    """Remove permits of files that were published long ago. Returns how many."""
    old = Permit.objects.filter(state=PermitState.CLOSED, expires_at__lte=timezone.now() - CLOSED_FOR)
    found = list(
        old.filter(file__status__in=(FileStatus.ACTIVE, FileStatus.TRASHED)).values_list("pk", flat=True)[:5000]
    )
    return Permit.objects.filter(pk__in=found).delete()[0]


def rejected_prune() -> int:
    """Remove the rows of files that were rejected a day ago (a setting). Returns how many."""
    before = timezone.now() - timedelta(seconds=settings.ENV.cdn_rejected_seconds)
    due = File.objects.filter(status=FileStatus.REJECTED, rejected_at__lte=before).order_by("rejected_at")
    return sum(_remove_rejected(*row) for row in list(due.values_list("pk", "account_id")[:BATCH]))


@transaction.atomic
def _remove_rejected(file_id: str, account_id: str) -> int:
    account_lock(Account(pk=account_id))
    rows = list(File.objects.select_for_update(of=("self",)).filter(pk=file_id, status=FileStatus.REJECTED))
    rows_remove(rows, {owner_of(row): Change(rejected_files=-1) for row in rows})
    return len(rows)


def purges_continue() -> int:
    """Remove files whose deletion was asked for by a request that did not end. Returns how many."""
    accounts = File.objects.filter(purge=True).order_by().values_list("account_id", flat=True).distinct()
    return sum(purge_batch(account_id) for account_id in list(accounts[:PURGE_ROUNDS]))
