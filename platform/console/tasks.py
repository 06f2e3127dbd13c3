"""Celery's entry points: one call each."""

from __future__ import annotations

from celery import shared_task

from console import summary


@shared_task
def take_summary() -> None:
    """Celery beat: count what the dashboard shows of large tables."""
    summary.summary_take()
