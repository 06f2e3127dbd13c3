"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from notifications import process
from notifications.sends import pauses, queue


@shared_task
def sends_begin() -> None:
    """On the queue of `push`: there is something to send."""
    process.PROCESS.wake()


@shared_task
def overdue_sends_end() -> int:
    """Celery beat: end what no process has ended."""
    return queue.overdue_sends_end()


@shared_task
def prune_rows() -> int:
    """Celery beat: sends of yesterday, pauses that are over."""
    return queue.ended_sends_prune() + pauses.ended_pauses_remove()
