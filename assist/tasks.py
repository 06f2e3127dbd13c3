"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from assist import calls, day_count


@shared_task
def expire_calls() -> int:
    """Give back the calls of processes that died. Called by Celery beat."""
    return calls.expire_calls()


@shared_task
def prune_rows() -> int:
    """Remove old counts. Called by Celery beat."""
    return day_count.prune_days()
