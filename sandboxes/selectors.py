"""Reading sandboxes within the scope of an actor. Sandboxes outside of it do not exist for the actor (404)."""

from __future__ import annotations

from django.db.models import QuerySet

from accounts.actors import Actor
from common.errors import NotFound
from common.log_context import set_logged_workspace
from sandboxes.ids import workspace_id_of
from sandboxes.states import SandboxStatus, workspace_statuses
from workspaces import call_counter
from workspaces.models import Workspace
from workspaces.models.workspace import Kind
from workspaces.selectors import visible_workspaces, workspaces_in

NOT_FOUND_MESSAGE = "There is no such sandbox."


def visible_sandboxes(actor: Actor) -> QuerySet[Workspace]:
    """Return the machines of the sandboxes that the actor may see; everything that a response shows is of their
    rows.
    """
    return visible_workspaces(actor).filter(kind=Kind.SANDBOX)


def listed_sandboxes(actor: Actor, *, status: str = "", namespace: str = "") -> QuerySet[Workspace]:
    """Return the list's rows, newest first. Raise Forbidden (bound to another namespace)."""
    found = workspaces_in(actor, namespace).filter(kind=Kind.SANDBOX)
    if status:
        found = found.filter(status__in=workspace_statuses(SandboxStatus(status)))
    return found.order_by("-created_at", "-id")


def get_sandbox(actor: Actor, sandbox_id: str) -> Workspace:
    """Return the machine of a sandbox. Raise NotFound, also for one that the actor may not see."""
    found = visible_sandboxes(actor).filter(pk=workspace_id_of(sandbox_id)).first()
    if found is None:
        raise NotFound(NOT_FOUND_MESSAGE)
    # The account is the actor's; this saves a query.
    found.account = actor.account
    return found


def requested_sandbox(actor: Actor, sandbox_id: str) -> Workspace:
    """Return what `get_sandbox` returns, and count the request as an API call of the machine; its log lines name it."""
    found = get_sandbox(actor, sandbox_id)
    call_counter.count_call(found.pk)
    set_logged_workspace(found.pk)
    return found
