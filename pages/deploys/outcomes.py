"""End of a deploy: its row, its page's row, the audit entry, and the charge or the return of held credits."""

from __future__ import annotations

from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction

from accounts.services import account_lock
from common.errors import DomainError, NotFound
from pages import payments
from pages.audit import record_event
from pages.deploys import failures, queue
from pages.models import PageDeploy
from pages.selectors import NOT_FOUND_MESSAGE
from pages.services import lock_page, write_page
from pages.states import DeploymentState, DeployState


@transaction.atomic
def deploy_succeeded(deploy: PageDeploy, *, kept_bytes: int) -> None:
    """End and charge a deploy whose release is live.

    Raise ClaimLost, and NotFound if the page is deleted; nothing has changed then, and nothing is charged. Locks are
    taken in one order: the account's, the ledger's with the namespace's, the page's. Requests that lock a page and
    write its namespace hold the account's lock, too.
    """
    _lock_account(deploy)
    payments.hold_end(deploy)
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


def _lock_account(deploy: PageDeploy) -> None:
    """Lock the account. Raise NotFound if it is deleted, with its pages."""
    try:
        account_lock(deploy.page.account)
    except ObjectDoesNotExist:
        raise NotFound(NOT_FOUND_MESSAGE) from None


@transaction.atomic
def deploy_failed(deploy: PageDeploy, error: DomainError) -> None:
    """End a deploy that failed. The live release stays live, and nothing is charged.

    Raise ClaimLost, and NotFound if the page is deleted; nothing has changed then. Locks are taken as in
    `deploy_succeeded`.
    """
    _lock_account(deploy)
    payments.hold_release(deploy)
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
