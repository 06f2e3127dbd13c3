"""Rows of deploys. Every write of them is here, each a guarded update.

Requests enqueue. The worker that owns the claim renews its lease, writes facts and finishes. `sweep` requeues and takes
over. A worker that lost its claim gets ClaimLost at its next write: its page was deleted, or another attempt has the
deploy.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils import timezone

from accounts.services import account_lock
from common.connections import release_connection
from common.work.leases import ClaimLost, Lease, new_claim, release_row
from common.work.wakeups import task_send
from pages.deploys import places
from pages.errors import DeployInProgress
from pages.models import Page, PageDeploy
from pages.states import DeployState
from workspaces.operations import waiting

logger = logging.getLogger(__name__)

QUEUE = "pages"
RUN_TASK = "pages.tasks.run_deploy"
# Ten renewals.
LEASE = Lease(timedelta(seconds=20))
_RUNNING = Q(state=DeployState.RUNNING)


def enqueue_deploy(page: Page, *, workspace_id: str, path: str, actor: str) -> PageDeploy:
    """Queue a deploy in the caller's transaction, and notify the worker when that commits.

    The deadline runs from now. Raise DeployInProgress if a deploy of the page is live.
    """
    try:
        with transaction.atomic():
            deploy = PageDeploy.objects.create(
                page=page,
                workspace_id=workspace_id,
                path=path,
                payer_id=page.namespace_id,
                actor=actor[:160],
                notified_at=Now(),
                deadline_at=Now() + timedelta(seconds=settings.ENV.deploy_seconds),
            )
    except IntegrityError:
        raise DeployInProgress from None
    deploy.refresh_from_db(fields=["notified_at", "deadline_at"])
    transaction.on_commit(lambda: notify_worker(deploy.pk))
    return deploy


def notify_worker(deploy_id: str) -> None:
    """Wake the worker by a task. If that fails (Redis is down), the next run of `sweep` repeats it."""
    task_send(RUN_TASK, QUEUE, [deploy_id])


def claim_next() -> PageDeploy | None:
    """Claim the next deploy; return None if none is available or has a place."""
    return next(filter(None, map(claim_deploy, places.deploys_in_turn())), None)


def claim_deploy(deploy_id: str) -> PageDeploy | None:
    """Claim a queued deploy.

    Return None if it is not available, if no place is left for its account or for any account, or if the claim was
    lost before its row was read.
    """
    deploys, claim = PageDeploy.objects.select_related("page__account").filter(pk=deploy_id), new_claim()
    deploy = deploys.filter(state=DeployState.QUEUED).first()
    if deploy is None:
        return None
    with transaction.atomic():
        # Two simultaneous claims of an account must not both take its last place.
        account_lock(deploy.page.account)
        if not places.has_place(deploy.page.account_id) or not _claim(deploy, claim):
            return None
    return deploys.filter(claim=claim).first()


def _claim(deploy: PageDeploy, claim: str) -> bool:
    available = places.available_deploys().filter(pk=deploy.pk)
    columns: dict[str, Any] = {"state": DeployState.RUNNING, "attempt": F("attempt") + 1, "step": ""}
    return bool(LEASE.take_rows(available, claim, **columns))


def renew_lease(deploy: PageDeploy) -> None:
    """Renew the lease: the claim owner is alive. Raise ClaimLost."""
    LEASE.write_row(deploy, _RUNNING)


def write_facts(deploy: PageDeploy, **columns: Any) -> None:
    """Write columns of a claimed deploy. Raise ClaimLost."""
    LEASE.write_row(deploy, _RUNNING, **columns)


def is_release_made(deploy: PageDeploy) -> bool:
    """Return whether the row has a release. The instance may differ: its write may have been rolled back."""
    return PageDeploy.objects.filter(pk=deploy.pk, release__isnull=False).exists()


def place_leave(deploy: PageDeploy, step: str = places.SLOW_EXPORT) -> None:
    """Give up the place of a claimed deploy that waits, and notify the worker of deploys that wait for a place.

    Raise ClaimLost. No connection is held afterwards.
    """
    write_facts(deploy, step=step)
    _notify_next()
    release_connection()


def finish_deploy(deploy: PageDeploy, state: DeployState, **columns: Any) -> None:
    """End a claimed deploy, in the transaction that also changes its page. Raise ClaimLost; roll back then."""
    if not release_row(deploy, _RUNNING, state=state, finished_at=timezone.now(), reserved_bytes=0, **columns):
        raise ClaimLost(deploy.pk)
    deploy.state = state
    transaction.on_commit(lambda: waiting.announce_outcome(deploy.pk))
    transaction.on_commit(_notify_next)


def _notify_next() -> None:
    """Notify the worker that a place is free. It takes the next deploy, whichever it is notified of."""
    queued = PageDeploy.objects.filter(state=DeployState.QUEUED).order_by("created_at")
    for deploy_id in queued.values_list("pk", flat=True)[: settings.ENV.pages_threads]:
        notify_worker(deploy_id)


def requeue_deploy(deploy: PageDeploy, *, because: str) -> bool:
    """Queue a running deploy for the next attempt. Return False if the claim is lost."""
    changed = release_row(deploy, _RUNNING, state=DeployState.QUEUED, notified_at=Now())
    if changed:
        logger.warning("%s is tried again: %s", deploy.pk, because)
        transaction.on_commit(lambda: notify_worker(deploy.pk))
    return changed


def take_over_deploy(deploy: PageDeploy) -> PageDeploy | None:
    """Claim a live deploy in order to fail it: it is past its deadline or out of attempts.

    Return None if it has changed, or has made its release.
    """
    unchanged = PageDeploy.objects.filter(pk=deploy.pk, state=deploy.state, claim=deploy.claim, release=None)
    claim = new_claim()
    if not LEASE.take_rows(unchanged, claim, state=DeployState.RUNNING):
        return None
    return PageDeploy.objects.filter(pk=deploy.pk, claim=claim).first()
