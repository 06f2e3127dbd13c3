"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from assist import calls, day_count


@shared_task
def expire_calls() -> int:
    """Celery beat: give back the calls of processes that died."""
    return calls.expire_calls()


@shared_task
def prune_rows() -> int:
    """Celery beat: remove old counts."""
    return day_count.prune_days()
