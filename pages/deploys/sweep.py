"""Sweep of deploys that no process works on.

The claim owner died, the deadline has passed, or the worker was not notified.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from common.errors import DomainError, NotFound
from common.work.leases import ClaimLost
from pages import errors
from pages.deploys import queue
from pages.deploys.outcomes import deploy_failed
from pages.deploys.worker import MAX_ATTEMPTS
from pages.models import PageDeploy
from pages.states import LIVE, DeployState

logger = logging.getLogger(__name__)

BATCH = 100
NOTIFY_AGAIN_AFTER = timedelta(seconds=10)
KEPT_FOR = timedelta(days=1)


def deploys_continue() -> int:
    """Queue what a dead process left, and notify the worker of queued deploys. Return how many were left."""
    dead = list(PageDeploy.objects.filter(queue.LEASE.free(), state=DeployState.RUNNING)[:BATCH])
    for deploy in dead:
        deploy_settle(deploy)
    _notify_again()
    return len(dead)


def deploy_settle(deploy: PageDeploy) -> None:
    """Queue or fail a deploy whose process ended.

    A deploy that has made its release is tried again however many attempts it had: it only has to be made live.
    """
    if deploy.release is not None or deploy.attempt < MAX_ATTEMPTS:
        queue.requeue_deploy(deploy, because="the process that ran it ended")
    else:
        reason = f"It was tried {deploy.attempt} times, and the process that ran it ended each time."
        _fail_abandoned(deploy, errors.DeployFailed(reason))


def _notify_again() -> None:
    due = Q(notified_at__lt=Now() - NOTIFY_AGAIN_AFTER) | Q(notified_at__gt=Now() + NOTIFY_AGAIN_AFTER)
    queued = PageDeploy.objects.filter(due, state=DeployState.QUEUED).order_by("created_at")
    found = list(queued.values_list("pk", flat=True)[:BATCH])
    PageDeploy.objects.filter(pk__in=found).update(notified_at=Now())
    for deploy_id in found:
        queue.notify_worker(deploy_id)


def deploys_expire() -> int:
    """Fail deploys past their deadline, except those that have made their release. Return how many."""
    _deadlines_limit()
    overdue = PageDeploy.objects.filter(state__in=LIVE, deadline_at__lte=Now(), release=None)
    return sum(_fail_abandoned(deploy, DeadlinePassed()) for deploy in list(overdue.order_by("deadline_at")[:BATCH]))


def _deadlines_limit() -> None:
    """Shorten deadlines that are later than any that is given now: the clock was set back since.

    Other times of the future count as past, but this one does not: a deploy that is under way would be lost.
    """
    latest = Now() + timedelta(seconds=settings.ENV.deploy_seconds)
    PageDeploy.objects.filter(state__in=LIVE, deadline_at__gt=latest).update(deadline_at=latest)


class DeadlinePassed(DomainError):
    code = "deadline_exceeded"
    message = "The deploy did not finish in time."


def _fail_abandoned(deploy: PageDeploy, error: DomainError) -> bool:
    """Fail a deploy in place of its claim owner. Return False if it has changed since it was read."""
    owned = queue.take_over_deploy(deploy)
    if owned is None:
        return False
    try:
        deploy_failed(owned, error)
    except (ClaimLost, NotFound) as exc:
        logger.info("%s has ended already: %s", deploy.pk, exc)
        return False
    return True


def prune_deploys() -> int:
    """Delete the rows of deploys that ended long ago, one batch. Return how many."""
    old = PageDeploy.objects.filter(finished_at__lt=timezone.now() - KEPT_FOR).order_by("pk")
    return PageDeploy.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:500])).delete()[0]
