"""Services of published files: to the trash, back, and away.

Every change moves the same numbers between the columns of the pools, in the transaction that changes the row.
"""

from __future__ import annotations

import time
from collections import defaultdict

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.models import Account
from accounts.services import account_lock
from cdn.audit import record_event
from cdn.delivery import withdraw_links
from cdn.errors import CdnQuotaExceeded, FileNotKept, RestoreWithoutRoom, UploadCancelled
from cdn.models import File
from cdn.policy import effective_policy
from cdn.pools import Change, Owner, Room, change_pools, claim_pools
from cdn.services.rejection import file_reject, remove_on_commit
from cdn.services.rows import lock_file, owner_of, write_file
from cdn.states import UNFINISHED, FileStatus
from common.errors import InvalidState
from common.request_origin import NO_ORIGIN, RequestOrigin
from namespaces.models import Namespace

PURGE_BATCH = 500
# A request removes files for so long; the sweep removes the rest.
PURGE_SECONDS = 5.0


@transaction.atomic
def file_trash(*, file: File, actor: str, origin: RequestOrigin = NO_ORIGIN) -> File:
    """Move a file to the trash: it is not delivered from the next request on, and still counts as stored.

    A file that is not published yet is cancelled and becomes `rejected`. Idempotent. Raise InvalidState if it was
    rejected, and FileNotKept.
    """
    _, stored = lock_file(file.pk, file.account_id)
    if stored.status == FileStatus.TRASHED:
        return stored
    if stored.status == FileStatus.REJECTED:
        raise InvalidState("The file was rejected; there is nothing to delete.", details={"status": stored.status})
    if stored.status in UNFINISHED:
        file_reject(stored, UploadCancelled())
    else:
        _move_to_trash(stored)
    record_event(stored.account_id, "trashed", stored.filename, file_id=stored.pk, actor=actor, origin=origin)
    return stored


@transaction.atomic
def file_cancel(file: File) -> None:
    """Reject a file whose upload has broken off for good: no client knows its address. Idempotent."""
    try:
        _, stored = lock_file(file.pk, file.account_id)
    except FileNotKept:
        return
    if stored.status == FileStatus.UPLOADING:
        file_reject(stored, UploadCancelled("The upload ended before all bytes had arrived."))


def _move_to_trash(stored: File) -> None:
    write_file(stored, status=FileStatus.TRASHED, trashed_at=timezone.now())
    change = Change(stored_bytes=-stored.footprint, stored_files=-1, trashed_bytes=stored.footprint, trashed_files=1)
    change_pools(owner_of(stored), change)
    withdraw_links(stored)


@transaction.atomic
def file_restore(*, file: File, actor: str, origin: RequestOrigin = NO_ORIGIN) -> File:
    """Take a file out of the trash. Idempotent. The trash counts as stored: there is room unless a quota was lowered.

    Raise RestoreWithoutRoom, InvalidState if it is not in the trash, FileNotKept; nothing has changed then.
    """
    account, stored = lock_file(file.pk, file.account_id)
    if stored.status == FileStatus.ACTIVE:
        return stored
    if stored.status != FileStatus.TRASHED:
        raise InvalidState("The file is not in the trash.", details={"status": stored.status})
    _claim_restored(account, stored)
    write_file(stored, status=FileStatus.ACTIVE, trashed_at=None)
    record_event(stored.account_id, "restored", stored.filename, file_id=stored.pk, actor=actor, origin=origin)
    return stored


def _claim_restored(account: Account, stored: File) -> None:
    """Move the counters of a restored file. Raise RestoreWithoutRoom.

    The limit of the month is not checked: the file was counted when it was published.
    """
    policy = effective_policy(account, _namespace(stored.namespace_id))
    change = Change(stored_bytes=stored.footprint, stored_files=1, trashed_bytes=-stored.footprint, trashed_files=-1)
    try:
        claim_pools(owner_of(stored), change, policy, Room(0, monthly=False))
    except CdnQuotaExceeded as exc:
        raise RestoreWithoutRoom(f"{RestoreWithoutRoom.message} {exc.message}", details=exc.details) from exc


def _namespace(namespace_id: str | None) -> Namespace | None:
    return Namespace(pk=namespace_id) if namespace_id else None


def trash_purge(*, account: Account, within: Q, actor: str, origin: RequestOrigin = NO_ORIGIN) -> tuple[int, bool]:
    """Delete the trash of a part of an account. Return how many files, and whether all are removed.

    The sweep removes the rest; no request finds them any more.
    """
    with transaction.atomic():
        account_lock(account)
        trashed = File.objects.filter(within, account=account, status=FileStatus.TRASHED, purge=False)
        count = trashed.update(purge=True)
        if count:
            record_event(account.pk, "purged", f"{count} files of the trash.", actor=actor, origin=origin)
    ends = time.monotonic() + PURGE_SECONDS
    left = count > 0
    while left and time.monotonic() < ends:
        left = bool(purge_batch(account.pk))
    return count, not left


@transaction.atomic
def purge_batch(account_id: str) -> int:
    """Remove some files whose deletion was asked for: rows and counters in one transaction, bytes after it. Return how
    many.

    If the process dies in between, `cdn_check` finds the bytes without a row.
    """
    account_lock(Account(pk=account_id))
    rows = list(File.objects.filter(account_id=account_id, purge=True).order_by("pk")[:PURGE_BATCH])
    rows_remove(rows, _trashed_sums(rows), stored=True)
    return len(rows)


def _trashed_sums(rows: list[File]) -> dict[Owner, Change]:
    sizes: dict[Owner, list[int]] = defaultdict(list)
    for row in rows:
        sizes[owner_of(row)].append(row.footprint)
    return {owner: Change(trashed_bytes=-sum(each), trashed_files=-len(each)) for owner, each in sizes.items()}


def rows_remove(rows: list[File], changes: dict[Owner, Change], *, stored: bool) -> None:
    """Delete rows of one account, which is locked, and subtract their counters. Bytes follow after the commit.

    `stored`: remove also the bytes in the store.
    """
    for owner in sorted(changes, key=lambda each: each.key):
        change_pools(owner, changes[owner])
    for row in rows:
        withdraw_links(row)
    remove_on_commit([row.pk for row in rows], stored=stored)
    File.objects.filter(pk__in=[row.pk for row in rows]).delete()
