"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from notifications import process
from notifications.sends import pauses, queue


@shared_task
def begin_sends() -> None:
    """Tell the process `push` that there is something to send."""
    process.PROCESS.wake()


@shared_task
def end_overdue_sends() -> int:
    """Celery beat: end what no process has ended."""
    return queue.end_overdue_sends()


@shared_task
def prune_rows() -> int:
    """Celery beat: sends of yesterday, pauses that are over."""
    return queue.prune_ended_sends() + pauses.remove_ended_pauses()
