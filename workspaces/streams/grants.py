"""Who may go on reading a stream. Asked once a second for all streams of a process, in two queries."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.db import DatabaseError

from accounts.actors import Actor
from accounts.models import Credential
from accounts.scopes import Scope
from workspaces.models import Workspace

logger = logging.getLogger(__name__)

# Below the number of variables that any SQLite takes.
BATCH = 500


@dataclass(frozen=True, slots=True)
class StreamGrant:
    """What an actor was let in by. Streams with equal tickets stand or fall together."""

    workspace_id: str
    account_id: str
    credential_id: str
    epoch: int
    via: str
    scope: str
    namespace_id: str
    pinned_to: str
    expires: int


def grant_of(actor: Actor, workspace: Workspace) -> StreamGrant:
    return StreamGrant(
        workspace_id=workspace.pk,
        account_id=actor.account.pk,
        credential_id=actor.credential_id,
        epoch=actor.epoch,
        via=actor.via,
        scope=actor.scope.value,
        namespace_id=actor.namespace_id,
        pinned_to=actor.workspace_id,
        expires=actor.expires,
    )


def revoked_grants(tickets: Sequence[StreamGrant]) -> dict[StreamGrant, str]:
    """The tickets that are good no more, with a reason for the client.

    While the database does not answer only time ends a stream: who was let in stays until it can be asked again.
    """
    now = time.time()
    found = {ticket: "the access token has expired" for ticket in tickets if ticket.expires and ticket.expires <= now}
    try:
        credentials, workspaces = _credentials(tickets), _workspaces(tickets)
    except DatabaseError as exc:
        logger.warning("the rights of open streams cannot be checked: %s", exc)
        return found
    for ticket in tickets:
        reason = _reason(ticket, credentials, workspaces)
        if reason:
            found.setdefault(ticket, reason)
    return found


def _reason(
    ticket: StreamGrant, credentials: dict[str, tuple[int, str, str, str]], workspaces: dict[str, tuple[str, str]]
) -> str:
    held = credentials.get(ticket.credential_id)
    # A token has its own scope and pin, for its life.
    own = (ticket.scope, ticket.namespace_id, ticket.pinned_to)
    if held is None or held[0] != ticket.epoch or (ticket.via == "credential" and held[1:] != own):
        return "the credential is valid no more"
    account, namespace = workspaces.get(ticket.workspace_id, ("", ""))
    pinned_elsewhere = ticket.scope == Scope.NAMESPACE and namespace != ticket.namespace_id
    if account != ticket.account_id or pinned_elsewhere:
        return "the workspace is gone"
    return ""


def _credentials(tickets: Sequence[StreamGrant]) -> dict[str, tuple[int, str, str, str]]:
    rows = Credential.objects.filter(account__is_active=True)
    columns = ("id", "epoch", "scope", "namespace_id", "workspace_id")
    return {
        row[0]: row[1:]
        for ids in batches({ticket.credential_id for ticket in tickets})
        for row in rows.filter(id__in=ids).values_list(*columns)
    }


def _workspaces(tickets: Sequence[StreamGrant]) -> dict[str, tuple[str, str]]:
    return {
        row[0]: row[1:]
        for ids in batches({ticket.workspace_id for ticket in tickets})
        for row in Workspace.objects.filter(pk__in=ids).values_list("pk", "account_id", "namespace_id")
    }


def batches(ids: Iterable[str]) -> Iterator[list[str]]:
    """In parts that one query takes."""
    listed = sorted(ids)
    for start in range(0, len(listed), BATCH):
        yield listed[start : start + BATCH]
