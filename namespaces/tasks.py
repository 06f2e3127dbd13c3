"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from namespaces import services


@shared_task
def continue_deletions() -> int:
    """Celery beat: delete what is in deleted namespaces, then their rows."""
    return services.deletions_continue()
