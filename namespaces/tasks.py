"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from namespaces import audit, services


@shared_task
def continue_deletions() -> int:
    """Celery beat: delete what is in deleted namespaces, then their rows."""
    return services.deletions_continue()


@shared_task
def prune_activity() -> int:
    """Celery beat: remove activity that is older than it is kept for."""
    return audit.activity_prune()
