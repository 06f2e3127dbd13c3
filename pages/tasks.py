"""Celery's entry points: one service call each."""

from __future__ import annotations

from celery import shared_task

from pages import publication
from pages.deploys import creations, sweep, worker


@shared_task
def run_deploy(deploy_id: str) -> None:
    """On the queue `pages`: notifies the worker of a deploy. Which one is next, the rows say."""
    worker.deploy_run()


@shared_task
def continue_deploys() -> int:
    """Celery beat: deploys of processes that died, and those that the worker was not notified of."""
    return sweep.deploys_continue()


@shared_task
def expire_deploys() -> int:
    """Celery beat: fail deploys past their deadline; remove pages whose creation failed and whose request has died."""
    return sweep.deploys_expire() + creations.discard_failed_creations()


@shared_task
def continue_publications() -> int:
    """Celery beat, on the queue `pages`: changes of pages that were not applied to their files."""
    return publication.publications_continue()


@shared_task
def reconcile_files() -> None:
    """Celery beat, on the queue `pages`: files against rows."""
    publication.files_reconcile()


@shared_task
def prune_rows() -> int:
    """Celery beat: deploys that ended long ago."""
    return sweep.prune_deploys()
