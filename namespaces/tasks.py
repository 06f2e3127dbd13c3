"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from namespaces import services


@shared_task
def continue_deletions() -> int:
    """Delete the workspaces in deleted namespaces, then the rows of the namespaces. Called by Celery beat."""
    return services.deletions_continue()
