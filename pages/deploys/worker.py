"""Work of the worker `pages`: claiming a deploy and carrying it out."""

from __future__ import annotations

import logging
import threading

from django.conf import settings

from common.database_errors import is_database_unavailable
from common.errors import DomainError, NotFound
from common.work.leases import ClaimLost
from common.work.renewals import claim_renewed
from pages import errors
from pages.deploys import places, queue, steps
from pages.deploys.outcomes import deploy_failed
from pages.models import PageDeploy
from pages.releases.errors import ExportDamaged
from workspaces.errors import GuestUnreachable

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
HEARTBEAT_SECONDS = 2.0
# Errors that may be gone at the next attempt: a connection was lost, a file was written while it was read.
RETRYABLE = (GuestUnreachable, ExportDamaged)


def deploy_run() -> None:
    """Claim the next deploy and carry it out. Do nothing if there is none."""
    deploy = queue.claim_next()
    if deploy is None:
        return
    with claim_renewed(lambda: queue.renew_lease(deploy), HEARTBEAT_SECONDS) as held:
        try:
            _attempt(deploy, held.lost)
        except (ClaimLost, NotFound) as exc:
            logger.warning("lost the claim of %s: %s", deploy.pk, exc)


def _attempt(deploy: PageDeploy, lost: threading.Event) -> None:
    try:
        if deploy.release is None:
            steps.release_export(deploy, lost)
        steps.release_activate(deploy)
    except ClaimLost:
        raise
    except RETRYABLE as exc:
        if deploy.attempt < MAX_ATTEMPTS:
            _pause(deploy, lost)
            if queue.requeue_deploy(deploy, because=str(exc)):
                return
        deploy_failed(deploy, _shown_error(exc))
    except Exception as exc:
        if is_database_unavailable(exc):
            # The failure could not be stored either: `sweep` queues another attempt.
            logger.warning("%s was interrupted because the database is unavailable: %s", deploy.pk, exc)
        elif queue.is_release_made(deploy):
            if isinstance(exc, NotFound):
                raise  # the page is deleted
            # The deploy can only succeed: no process owns it from here on, and `sweep` queues another attempt.
            logger.exception("%s cannot be made live now", deploy.pk)
        else:
            deploy_failed(deploy, _shown_error(exc))


def _pause(deploy: PageDeploy, lost: threading.Event) -> None:
    """Wait before the next attempt, as long as an operation does; without a place. Raise ClaimLost."""
    queue.place_leave(deploy, places.RETRY_PAUSE)
    if lost.wait(settings.ENV.retry_seconds * 2 ** (deploy.attempt - 1)):
        raise ClaimLost(deploy.pk)


def _shown_error(exc: Exception) -> DomainError:
    if isinstance(exc, ExportDamaged):
        return errors.DeployFailed(f"The folder changed while it was read, or could not be read: {exc.sentence}")
    # This import is not at the top: a worker loads no REST framework before something fails.
    from common.responses import as_domain_error

    return as_domain_error(exc)
