"""Deploy rows: every write of them is here, each a guarded update.

Requests enqueue; the worker that owns the claim records heartbeats and facts and finishes; `sweep` requeues and takes
over. A claim owner that lost its claim gets ClaimLost at its next write.
"""

from __future__ import annotations

import logging
import secrets
from datetime import timedelta
from typing import Any

import redis
from celery import current_app
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError

from accounts.services import account_lock
from common.connections import release_connection
from pages.deploys import places
from pages.deploys.times import steady_now
from pages.errors import DeployInProgress
from pages.models import Page, PageDeploy
from pages.states import DeployState
from workspaces.operations import waiting

logger = logging.getLogger(__name__)

QUEUE = "pages"
RUN_TASK = "pages.tasks.run_deploy"


class ClaimLost(Exception):
    """This process no longer owns the deploy: its page was deleted, or it was given to another attempt."""


def enqueue_deploy(page: Page, *, workspace_id: str, path: str, actor: str) -> PageDeploy:
    """Queue a deploy in the caller's transaction, and notify the worker when that commits.

    Raises DeployInProgress where one is live. The deadline runs from now.
    """
    now = steady_now()
    try:
        with transaction.atomic():
            deploy = PageDeploy.objects.create(
                page=page,
                workspace_id=workspace_id,
                path=path,
                payer_id=page.namespace_id,
                actor=actor[:160],
                notified_at=now,
                deadline_at=now + timedelta(seconds=settings.ENV.deploy_seconds),
            )
    except IntegrityError:
        raise DeployInProgress from None
    transaction.on_commit(lambda: notify_worker(deploy.pk))
    return deploy


def notify_worker(deploy_id: str) -> None:
    """Wake the worker by a task. Where that fails (Redis is down), its next look repeats it."""
    try:
        current_app.send_task(RUN_TASK, args=[deploy_id], queue=QUEUE, expires=3600)
    except (OperationalError, redis.RedisError, OSError) as exc:
        logger.warning("could not notify the worker of %s: %s", deploy_id, exc)


def new_claim() -> str:
    """A token that identifies one attempt of one process."""
    return secrets.token_hex(16)


def claim_next(token: str) -> PageDeploy | None:
    """Claim the deploy whose turn it is; None where none is available or has a place."""
    return next(filter(None, (claim_deploy(deploy_id, token) for deploy_id in places.deploys_in_turn())), None)


def claim_deploy(deploy_id: str, token: str) -> PageDeploy | None:
    """Claim a queued deploy; None where it is not available, or others of its account or of all have every place."""
    deploy = PageDeploy.objects.select_related("page__account").filter(pk=deploy_id, state=DeployState.QUEUED).first()
    if deploy is None:
        return None
    with transaction.atomic():
        # So that of two claims of an account at once not both take its last place.
        account_lock(deploy.page.account)
        if not places.has_place(deploy.page.account_id) or not _claim(deploy, token):
            return None
    deploy.refresh_from_db()
    return deploy


def _claim(deploy: PageDeploy, token: str) -> bool:
    changed = places.available_deploys().filter(pk=deploy.pk).update(
        state=DeployState.RUNNING, claim=token, attempt=F("attempt") + 1, heartbeat_at=steady_now(), step=""
    )  # fmt: skip
    return bool(changed)


def record_heartbeat(claim: str) -> bool:
    """The claim owner is alive. False where the claim is lost."""
    running = PageDeploy.objects.filter(claim=claim, state=DeployState.RUNNING)
    return bool(running.update(heartbeat_at=steady_now()))


def write_facts(deploy: PageDeploy, **columns: Any) -> None:
    """Write columns of a claimed deploy. Raises ClaimLost."""
    if not _claimed(deploy).update(heartbeat_at=steady_now(), **columns):
        raise ClaimLost(deploy.pk)
    for name, value in columns.items():
        setattr(deploy, name, value)


def is_release_made(deploy: PageDeploy) -> bool:
    """By the row: the write of it may have been rolled back."""
    return PageDeploy.objects.filter(pk=deploy.pk, release__isnull=False).exists()


def place_leave(deploy: PageDeploy, step: str = places.SLOW_EXPORT) -> None:
    """A claimed deploy waits and has no place from now on; the worker is notified of what waits for one.

    Raises ClaimLost. No connection is held afterwards.
    """
    write_facts(deploy, step=step)
    _notify_next()
    release_connection()


def finish_deploy(deploy: PageDeploy, state: DeployState, **columns: Any) -> None:
    """End a claimed deploy, in the transaction of what it changes of its page. Raises ClaimLost; roll back then."""
    if not _claimed(deploy).update(state=state, finished_at=timezone.now(), reserved_bytes=0, **columns):
        raise ClaimLost(deploy.pk)
    deploy.state = state
    transaction.on_commit(lambda: waiting.announce_outcome(deploy.pk))
    transaction.on_commit(_notify_next)


def _notify_next() -> None:
    """A place is free for what waits for one. The worker takes what is next, whichever it is notified of."""
    queued = PageDeploy.objects.filter(state=DeployState.QUEUED).order_by("created_at")
    for deploy_id in queued.values_list("pk", flat=True)[: settings.ENV.pages_threads]:
        notify_worker(deploy_id)


def _claimed(deploy: PageDeploy) -> QuerySet[PageDeploy]:
    return PageDeploy.objects.filter(pk=deploy.pk, claim=deploy.claim, state=DeployState.RUNNING)


def requeue_deploy(deploy: PageDeploy, *, because: str) -> bool:
    """Queue a running deploy for the next attempt. False where the claim is lost."""
    changed = _claimed(deploy).update(state=DeployState.QUEUED, claim="", notified_at=steady_now())
    if changed:
        logger.warning("%s is tried again: %s", deploy.pk, because)
        transaction.on_commit(lambda: notify_worker(deploy.pk))
    return bool(changed)


def take_over_deploy(deploy: PageDeploy) -> PageDeploy | None:
    """Claim a live deploy in order to fail it: past its deadline or out of attempts. None where it has changed, or has
    made its release.
    """
    unchanged = PageDeploy.objects.filter(pk=deploy.pk, state=deploy.state, claim=deploy.claim, release=None)
    if not unchanged.update(state=DeployState.RUNNING, claim=new_claim(), heartbeat_at=steady_now()):
        return None
    return PageDeploy.objects.get(pk=deploy.pk)
