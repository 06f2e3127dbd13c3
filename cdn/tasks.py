"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from cdn.media import removal, sweep, withdrawal
from cdn.services import processing, storage_check, sweeps


@shared_task
def expire_permits() -> int:
    """Reject files whose uploads or processing did not end in time. Called by Celery beat."""
    return sweeps.permits_expire() + processing.processing_expire()


@shared_task
def continue_purges() -> int:
    """Continue deletions that a request did not end. Called by Celery beat."""
    return sweeps.purges_continue()


@shared_task
def prune_rows() -> int:
    """Remove rejected files, and permits of files that were published long ago. Called by Celery beat."""
    return sweeps.rejected_prune() + sweeps.permits_prune()


@shared_task
def remove_orphans() -> int:
    """Remove bytes that belong to no row. Called by Celery beat, on the queue `media`."""
    return storage_check.orphans_remove()


@shared_task
def process_next() -> bool:
    """Process the next file, after the bytes of some file have arrived. On the queue `media`; the rows say which file
    is next.
    """
    return sweep.next_process()


@shared_task
def remove_stored(file_ids: list[str]) -> int:
    """Remove bytes in a remote store whose rows are gone or rejected. On the queue `media`."""
    return removal.stored_remove(file_ids)


@shared_task
def withdraw_links(account_id: str) -> None:
    """Remove links of a deactivated account that the request had no time for. On the queue `media`."""
    withdrawal.withdraw_account_links(account_id)


@shared_task
def continue_withdrawals() -> int:
    """Continue removing links of deactivated accounts that no process goes on with. Called by Celery beat."""
    return withdrawal.withdrawals_continue()


@shared_task
def process_due() -> int:
    """Process files that no process works on. Called by Celery beat, on the queue `media`."""
    return sweep.due_process()


@shared_task
def remove_ended_parts() -> int:
    """Remove remains of killed attempts beside the store. Called by Celery beat, on the queue `media`."""
    return sweep.ended_parts_remove()
