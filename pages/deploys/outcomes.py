"""The end of a deploy: its row, its page's row, the audit entry and the charge."""

from __future__ import annotations

import logging

from django.db import transaction
from django.utils import timezone

from accounts.services import account_lock
from common.errors import Conflict, DomainError
from credits.entries import Purpose
from credits.ledger import credits_charge
from credits.models import Service, Unit
from credits.services import Rates
from pages.audit import record_event
from pages.deploys import failures, queue
from pages.models import Page, PageDeploy
from pages.services import lock_page, write_page
from pages.states import DeploymentState, DeployState

logger = logging.getLogger(__name__)


@transaction.atomic
def deploy_succeeded(deploy: PageDeploy, *, kept_bytes: int) -> None:
    """Its release is live: the deploy ends, and is charged. Raises ClaimLost, NotFound (the page is deleted); nothing
    has changed then, and nothing is charged.

    In the order of the locks: the account's, the ledger's with the namespace's, the page's. Requests that lock a page
    and write its namespace hold the account's lock, too.
    """
    account_lock(deploy.page.account)
    _charge(deploy)
    page = lock_page(deploy.page)
    queue.finish_deploy(deploy, DeployState.SUCCEEDED)
    write_page(
        page,
        kept_bytes=kept_bytes,
        deployment_state=DeploymentState.DEPLOYED,
        deployment_error_code="",
        deployment_error="",
    )
    record_event(page, "deployed", f"Release {deploy.release}.", actor=deploy.actor)


def _charge(deploy: PageDeploy) -> None:
    """To its page's namespace, by the price of the time when it was requested. Idempotent.

    What a balance has no room for is not charged, and the log says so.
    """
    page = Page.objects.select_related("namespace").filter(pk=deploy.page_id).first()
    amount = Rates.load().credits(Unit.PAGE_DEPLOY, min(deploy.created_at, timezone.now()))
    if page is None or not amount:
        return
    purpose = Purpose(f"deploy:{deploy.pk}", deploy.workspace_id, f"A deploy of the page {page.slug}.")
    try:
        credits_charge(namespace=page.namespace, service=Service.DEPLOYMENT, amount=amount, purpose=purpose)
    except Conflict as exc:
        logger.error("%s is not charged: %s", deploy.pk, exc.message)


@transaction.atomic
def deploy_failed(deploy: PageDeploy, error: DomainError) -> None:
    """The live release stays live. Raises ClaimLost, NotFound (the page is deleted); nothing has changed then."""
    page = lock_page(deploy.page)
    columns = failures.error_columns(error)
    queue.finish_deploy(deploy, DeployState.FAILED, **columns)
    write_page(
        page,
        deployment_state=DeploymentState.FAILED,
        deployment_error_code=columns["error_code"],
        deployment_error=columns["error_message"],
    )
    record_event(page, "deploy_failed", error.message, actor=deploy.actor)
