"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from pages import publication
from pages.deploys import creations, sweep, worker


@shared_task
def run_deploy(deploy_id: str) -> None:
    """Carry out the next deploy. On the queue `pages`; the rows say which deploy is next, not the id."""
    worker.deploy_run()


@shared_task
def continue_deploys() -> int:
    """Continue deploys of processes that died, and notify the worker again. Called by Celery beat."""
    return sweep.deploys_continue()


@shared_task
def expire_deploys() -> int:
    """Fail deploys past their deadline, and remove pages whose creation failed and whose request has died.

    Called by Celery beat.
    """
    return sweep.deploys_expire() + creations.discard_failed_creations()


@shared_task
def continue_publications() -> int:
    """Apply changes of pages that were not applied to their files. Called by Celery beat, on the queue `pages`."""
    return publication.publications_continue()


@shared_task
def reconcile_files() -> None:
    """Compare files with rows. Called by Celery beat, on the queue `pages`."""
    publication.files_reconcile()


@shared_task
def prune_rows() -> int:
    """Delete deploys that ended long ago. Called by Celery beat."""
    return sweep.prune_deploys()
