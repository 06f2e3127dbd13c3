"""Work of requests with deploys: create a page, deploy to it, wait for the outcome."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import IntegrityError, transaction

from accounts.actors import Actor
from accounts.models import Account
from accounts.services import account_lock
from common.errors import DomainError, NotFound
from common.request_origin import NO_ORIGIN, RequestOrigin
from credits.enforcement import require_credits
from credits.models import Service
from credits.refusals import refusals_announced
from edge.addresses import default_domain
from namespaces import selectors as namespaces
from namespaces.services import namespace_used
from pages import errors, payments, slugs
from pages.audit import record_event
from pages.deploys import failures, queue
from pages.deploys.creations import failed_creations
from pages.models import NAME_LENGTH, Page, PageDeploy
from pages.selectors import NOT_FOUND_MESSAGE, kept_bytes
from pages.services import lock_page, page_discard, write_page
from pages.states import LIVE, DeploymentState, DeployState
from workspaces.guests import address_of
from workspaces.models import Workspace
from workspaces.operations import waiting

SLUG_TRIES = 5


@dataclass(frozen=True, slots=True)
class NewPage:
    """Validated request to create a page.

    `name` None: that of the workspace. `slug` None: made from the name. `domain` None: the default domain.
    """

    workspace: Workspace
    path: str
    name: str | None = None
    slug: str | None = None
    domain: str | None = None


@refusals_announced()
def page_create(*, actor: Actor, new: NewPage, origin: RequestOrigin = NO_ORIGIN) -> tuple[Page, PageDeploy]:
    """Create the row in the workspace's namespace, queue its first deploy, and hold its price.

    Raise VmNotRunning, NamespaceSuspended, QuotaExceeded, KeptBytesExceeded, PageSlugTaken; nothing is left then.
    """
    address_of(new.workspace)
    for _ in range(SLUG_TRIES):
        try:
            return _create_page(actor, new, origin)
        except IntegrityError as exc:
            # Another account took the same slug between the query and the insert.
            if new.slug is not None:
                raise errors.PageSlugTaken(details={"slug": new.slug}) from exc
    raise errors.PageSlugTaken("No free slug was found for this name. Choose a slug.")


@transaction.atomic
def _create_page(actor: Actor, new: NewPage, origin: RequestOrigin) -> tuple[Page, PageDeploy]:
    account = account_lock(actor.account)
    namespace = namespaces.for_create(actor, new.workspace.namespace_slug)
    require_credits(namespace, Service.DEPLOYMENT)
    require_kept_bytes(account)
    if new.slug is not None and slugs.is_taken(new.slug) and not _failed_creation_discard(account, new.slug):
        raise errors.PageSlugTaken(details={"slug": new.slug})
    name = new.name or new.workspace.name[:NAME_LENGTH]
    page = Page.objects.create(
        account=account,
        namespace=namespace,
        name=name,
        slug=new.slug or slugs.free_slug(name),
        domain=new.domain or default_domain(settings.ENV.pages_url),
        source_workspace_id=new.workspace.pk,
        exported_path=new.path,
    )
    deploy = queue.enqueue_deploy(page, workspace_id=new.workspace.pk, path=new.path, actor=actor.label)
    # The ledger's locks come before the namespace's, as everywhere.
    payments.hold_begin(deploy, namespace)
    namespace_used(namespace)
    detail = f"From {new.path} of {new.workspace.pk}."
    record_event(page, "created", detail, actor=actor.label, origin=origin)
    return page, deploy


def _failed_creation_discard(account: Account, slug: str) -> bool:
    """Delete the page whose creation failed and which has this slug. Return whether the slug is free now."""
    failed = failed_creations().filter(account=account, slug=slug).first()
    return failed is not None and page_discard(page=failed)


@refusals_announced()
@transaction.atomic
def page_deploy(
    *, page: Page, workspace: Workspace, path: str, actor: str, origin: RequestOrigin = NO_ORIGIN
) -> PageDeploy:
    """Queue a deploy, and hold its price. The live release stays live until it is replaced.

    Raise VmNotRunning, NamespaceSuspended, QuotaExceeded, KeptBytesExceeded, DeployInProgress, and NotFound if the page
    is deleted; nothing has changed then.
    """
    address_of(workspace)
    account = account_lock(page.account)
    stored = lock_page(page)
    namespaces.require_open(stored.namespace)
    require_credits(stored.namespace, Service.DEPLOYMENT)
    deploy = queue.enqueue_deploy(stored, workspace_id=workspace.pk, path=path, actor=actor)
    require_kept_bytes(account)
    payments.hold_begin(deploy, stored.namespace)
    write_page(stored, deployment_state=DeploymentState.DEPLOYING, deployment_error_code="", deployment_error="")
    namespace_used(stored.namespace)
    record_event(stored, "deploy_requested", f"From {path} of {workspace.pk}.", actor=actor, origin=origin)
    return deploy


def require_kept_bytes(account: Account, added: int = 1, besides: PageDeploy | None = None) -> None:
    """Raise KeptBytesExceeded if so many bytes more are above the limit. Call it under the account's lock."""
    kept, most = kept_bytes(account.pk, besides=besides), settings.ENV.pages_account_max_bytes
    if kept + added > most:
        raise errors.KeptBytesExceeded(details={"current": kept, "max": most})


def wait_for_deploy(deploy: PageDeploy, account_id: str) -> bool:
    """Wait for a deploy; return False if it goes on after the wait.

    Raise the error with which it failed, and NotFound if the page was deleted.
    """
    ended = waiting.wait_for_row(deploy.pk, account_id, settings.ENV.deploy_wait_seconds, lambda: _ended(deploy))
    if ended is None:
        return False
    if ended.state == DeployState.FAILED:
        raise failures.error_of(ended)
    if ended.state != DeployState.SUCCEEDED:
        raise NotFound(NOT_FOUND_MESSAGE)
    return True


def _ended(deploy: PageDeploy) -> PageDeploy | None:
    row = PageDeploy.objects.filter(pk=deploy.pk).first()
    if row is None:
        return deploy
    return None if row.state in LIVE else row


def wait_for_first_deploy(page: Page, deploy: PageDeploy, account_id: str) -> bool:
    """Wait as `wait_for_deploy` does. If the deploy failed, delete its page: the same request can be sent again."""
    try:
        return wait_for_deploy(deploy, account_id)
    except DomainError:
        page_discard(page=page)
        raise
