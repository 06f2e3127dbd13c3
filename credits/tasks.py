"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from credits import holds


@shared_task
def expire_holds() -> int:
    """Give back what was held and never settled. Called by Celery beat."""
    return holds.holds_expire()
