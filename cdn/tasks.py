"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from cdn.media import removal, sweep, withdrawal
from cdn.services import processing, storage_check, sweeps


@shared_task
def expire_permits() -> int:
    """Celery beat: uploads that did not end in time, and files that were not looked at in time."""
    return sweeps.permits_expire() + processing.processing_expire()


@shared_task
def continue_purges() -> int:
    """Celery beat: deletions that a request did not end."""
    return sweeps.purges_continue()


@shared_task
def prune_rows() -> int:
    """Celery beat: rejected files, and permits of what was published long ago."""
    return sweeps.rejected_prune() + sweeps.permits_prune()


@shared_task
def remove_orphans() -> int:
    """Celery beat, on the queue `media`: bytes that belong to no row."""
    return storage_check.orphans_remove()


@shared_task
def process_next() -> bool:
    """On the queue `media`: a file's bytes have arrived. Which one is processed, the rows say."""
    return sweep.next_process()


@shared_task
def remove_stored(file_ids: list[str]) -> int:
    """On the queue `media`: bytes in a remote store whose rows are gone, or refused."""
    return removal.stored_remove(file_ids)


@shared_task
def withdraw_links(account_id: str) -> None:
    """On the queue `media`: links of a deactivated account that the request had no time for."""
    withdrawal.withdraw_account_links(account_id)


@shared_task
def continue_withdrawals() -> int:
    """Celery beat: links of deactivated accounts that no process goes on with."""
    return withdrawal.withdrawals_continue()


@shared_task
def process_due() -> int:
    """Celery beat, on the queue `media`: files that no process looks at."""
    return sweep.due_process()


@shared_task
def remove_ended_parts() -> int:
    """Celery beat, on the queue `media`: what killed attempts left beside the store."""
    return sweep.ended_parts_remove()
