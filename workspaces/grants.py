"""Check of the streams that may stay open, and of the bodies that may go on: twice a second for all of a process, in
two queries.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.db import DatabaseError

from accounts.actors import Actor
from accounts.models import Credential
from accounts.scopes import Scope
from common.watched_bodies import BodyGrant
from workspaces.models import Workspace

logger = logging.getLogger(__name__)

# The number of ids in one query.
BATCH = 500


@dataclass(frozen=True, slots=True)
class StreamGrant:
    """Credential and binding that authorized a stream. Streams with equal grants are revoked together."""

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


def body_grant(actor: Actor, workspace: Workspace) -> BodyGrant:
    """Return the grant of a body on its way, in either direction (`common.watched_bodies`)."""
    return BodyGrant(grant_of(actor, workspace), revoked_grants)


def revoked_grants(grants: Sequence[StreamGrant]) -> dict[StreamGrant, str]:
    """Return the revoked grants, each with a reason for the client.

    While the database does not answer, only expiry ends a stream; the others stay open until it can be checked again.
    """
    now = time.time()
    found = {grant: "the access token has expired" for grant in grants if grant.expires and grant.expires <= now}
    try:
        credentials, workspaces = _credentials(grants), _workspaces(grants)
    except DatabaseError as exc:
        logger.warning("the grants of open streams cannot be checked: %s", exc)
        return found
    for grant in grants:
        reason = _reason(grant, credentials, workspaces)
        if reason:
            found.setdefault(grant, reason)
    return found


def _reason(
    grant: StreamGrant, credentials: dict[str, tuple[int, str, str, str]], workspaces: dict[str, tuple[str, str]]
) -> str:
    current = credentials.get(grant.credential_id)
    # A token keeps its own scope and binding until it expires.
    granted = (grant.scope, grant.namespace_id, grant.pinned_to)
    if current is None or current[0] != grant.epoch or (grant.via == "credential" and current[1:] != granted):
        return "the credential is not valid any more"
    account, namespace = workspaces.get(grant.workspace_id, ("", ""))
    pinned_elsewhere = grant.scope == Scope.NAMESPACE and namespace != grant.namespace_id
    if account != grant.account_id or pinned_elsewhere:
        return "the workspace does not exist any more"
    return ""


def _credentials(grants: Sequence[StreamGrant]) -> dict[str, tuple[int, str, str, str]]:
    rows = Credential.objects.filter(account__is_active=True)
    columns = ("id", "epoch", "scope", "namespace_id", "workspace_id")
    return {
        row[0]: row[1:]
        for ids in batches({grant.credential_id for grant in grants})
        for row in rows.filter(id__in=ids).values_list(*columns)
    }


def _workspaces(grants: Sequence[StreamGrant]) -> dict[str, tuple[str, str]]:
    return {
        row[0]: row[1:]
        for ids in batches({grant.workspace_id for grant in grants})
        for row in Workspace.objects.filter(pk__in=ids).values_list("pk", "account_id", "namespace_id")
    }


def batches(ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield the ids in parts small enough for one query."""
    listed = sorted(ids)
    for start in range(0, len(listed), BATCH):
        yield listed[start : start + BATCH]
