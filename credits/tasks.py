"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from credits import holds, waiting_charges


@shared_task
def expire_holds() -> int:
    """Celery beat: give back what was held and never settled."""
    return holds.holds_expire()


@shared_task
def charge_waiting() -> int:
    """Celery beat: charge what waited for room in its balance, where there is some now."""
    return waiting_charges.waiting_charges_retry()
