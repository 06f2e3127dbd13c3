"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from assist import calls, day_count


@shared_task
def calls_expire() -> int:
    """Celery beat: give back the calls of processes that died."""
    return calls.calls_expire()


@shared_task
def rows_prune() -> int:
    """Celery beat: remove old counts."""
    return day_count.days_prune()
