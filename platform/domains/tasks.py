"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from domains import publication


@shared_task
def continue_names() -> int:
    """Celery beat: changes of names that were not applied to the files of the edge."""
    return publication.names_continue()


@shared_task
def reconcile_names() -> None:
    """Celery beat: files of the edge against rows."""
    publication.names_reconcile()
