"""Deploys that no process works on: the claim owner died, the deadline has passed, the worker was not notified."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from common.errors import DomainError, NotFound
from pages import errors
from pages.deploys import queue
from pages.deploys.outcomes import deploy_failed
from pages.deploys.times import steady_now
from pages.deploys.worker import MAX_ATTEMPTS
from pages.models import PageDeploy
from pages.states import LIVE, DeployState

logger = logging.getLogger(__name__)

BATCH = 100
# Ten heartbeats.
DEAD_AFTER = timedelta(seconds=20)
NOTIFY_AGAIN_AFTER = timedelta(seconds=10)
KEPT_FOR = timedelta(days=1)


def deploys_continue() -> int:
    """Queue what a dead process left, and notify the worker of what is queued. Returns how many were left."""
    now = steady_now()
    # A time that is later than now was written before the clock was set back.
    silent = Q(heartbeat_at__lt=now - DEAD_AFTER) | Q(heartbeat_at__gt=now + DEAD_AFTER)
    dead = list(PageDeploy.objects.filter(silent, state=DeployState.RUNNING)[:BATCH])
    for deploy in dead:
        deploy_settle(deploy)
    _notify_again()
    return len(dead)


def deploy_settle(deploy: PageDeploy) -> None:
    """One that has made its release is tried again whatever its attempts: all that is left is to make it live."""
    if deploy.release is not None or deploy.attempt < MAX_ATTEMPTS:
        queue.requeue_deploy(deploy, because="the process that ran it ended")
    else:
        reason = f"It was tried {deploy.attempt} times, and the process that ran it ended each time."
        _fail_abandoned(deploy, errors.DeployFailed(reason))


def _notify_again() -> None:
    now = steady_now()
    due = Q(notified_at__lt=now - NOTIFY_AGAIN_AFTER) | Q(notified_at__gt=now + NOTIFY_AGAIN_AFTER)
    queued = PageDeploy.objects.filter(due, state=DeployState.QUEUED).order_by("created_at")
    found = list(queued.values_list("pk", flat=True)[:BATCH])
    PageDeploy.objects.filter(pk__in=found).update(notified_at=now)
    for deploy_id in found:
        queue.notify_worker(deploy_id)


def deploys_expire() -> int:
    """Fail deploys past their deadline, but for those that have made their release. Returns how many."""
    now = steady_now()
    _deadlines_limit(now)
    overdue = PageDeploy.objects.filter(state__in=LIVE, deadline_at__lt=now, release=None)
    return sum(_fail_abandoned(deploy, DeadlinePassed()) for deploy in list(overdue.order_by("deadline_at")[:BATCH]))


def _deadlines_limit(now: datetime) -> None:
    """One that is later than any that is given now was written before the host started with another time."""
    latest = now + timedelta(seconds=settings.ENV.deploy_seconds)
    PageDeploy.objects.filter(state__in=LIVE, deadline_at__gt=latest).update(deadline_at=latest)


class DeadlinePassed(DomainError):
    code = "deadline_exceeded"
    message = "The deploy did not finish in time."


def _fail_abandoned(deploy: PageDeploy, error: DomainError) -> bool:
    """Fail a deploy in place of its claim owner. False where it has changed since it was read."""
    owned = queue.take_over_deploy(deploy)
    if owned is None:
        return False
    try:
        deploy_failed(owned, error)
    except (queue.ClaimLost, NotFound) as exc:
        logger.info("%s has ended already: %s", deploy.pk, exc)
        return False
    return True


def deploys_prune() -> int:
    """Remove the rows of deploys that ended long ago, a batch at a time. Returns how many."""
    old = PageDeploy.objects.filter(finished_at__lt=timezone.now() - KEPT_FOR).order_by("pk")
    return PageDeploy.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:500])).delete()[0]
