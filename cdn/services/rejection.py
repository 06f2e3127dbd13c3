"""Rejection of an upload: bytes, counters and credits are given back, and the row says why."""

from __future__ import annotations

import logging

from django.utils import timezone

from cdn import hooks
from cdn.models import File, Permit
from cdn.pools import Change, change_pools
from cdn.services.payments import hold_release
from cdn.services.rows import owner_of, permit_of, write_file
from cdn.states import UPLOADABLE, FileStatus, PermitState
from cdn.storage import remove_bytes, remove_local, store_is_remote
from common.commits import call_after_commit
from common.errors import DomainError

logger = logging.getLogger(__name__)


def file_reject(file: File, error: DomainError) -> None:
    """Reject a locked file that is uploading or processing, in the caller's transaction."""
    permit = permit_of(file)
    if permit is None:
        raise ValueError(f"{file.pk} has no permit")
    receiving, was_stored = permit.state in UPLOADABLE, file.status == FileStatus.PROCESSING
    change = Change(
        reserved_bytes=-permit.reserved_bytes,
        reserved_files=-1,
        rejected_files=1,
        open_permits=-1 if receiving else 0,
    )
    write_file(
        file,
        status=FileStatus.REJECTED,
        error=error_object(error),
        claim="",
        lease_until=None,
        deadline_at=None,
        rejected_at=timezone.now(),
    )
    Permit.objects.filter(pk=file.pk).update(state=PermitState.CLOSED, lease_owner="", lease_until=None)
    change_pools(owner_of(file), change)
    hold_release(permit, file)
    remove_on_commit([file.pk], stored=was_stored)


def error_object(error: DomainError) -> dict[str, object]:
    """Return the error as a file's `error` shows it."""
    found: dict[str, object] = {"code": error.code, "message": error.message}
    if error.details is not None:
        found["details"] = error.details
    return found


def remove_on_commit(file_ids: list[str], *, stored: bool) -> None:
    """Remove the bytes of files after the commit.

    `stored`: they may have reached the store; the worker `media` asks a remote store, not this process. The sweep for
    bytes without a row removes those that cannot be removed now.
    """
    call_after_commit(_remove, file_ids, stored)


def _remove(file_ids: list[str], stored: bool) -> None:
    remove = remove_bytes if stored and not store_is_remote() else remove_local
    for file_id in file_ids:
        try:
            remove(file_id)
        except (DomainError, OSError) as exc:
            logger.warning("the bytes of %s could not be removed yet: %s", file_id, exc)
    if stored and store_is_remote() and file_ids:
        hooks.bytes_withdrawn(file_ids)
