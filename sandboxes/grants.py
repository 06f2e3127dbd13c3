"""The token that opened a socket keeps it open. One query checks the tokens of all sockets of a process.

    async with watched_token(holder, end):
        ...

`end` is called with a sentence for the client within a second of the token's end: the token was replaced, the machine
is being deleted, its account is inactive, nothing may run in its namespace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from django.db import DatabaseError

from common.sse.watched_grants import watched_grant
from sandboxes.tokens import SocketHolder, live_staff_tokens
from workspaces.data_plane.holders import DELETED, INACTIVE, REPLACED, SUSPENDED
from workspaces.grants import batches
from workspaces.models import Workspace
from workspaces.states import Status

logger = logging.getLogger(__name__)

STAFF_ENDED = "the access to this terminal has expired"
_COLUMNS = (
    "pk", "sandbox__token_hash", "status", "account__is_active", "namespace__suspended_by_hand",
    "namespace__quota_stops_workspaces",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SocketGrant:
    """The token that opened a socket. Sockets with equal grants end together.

    `staff`: the hash is that of a token of staff, which does not end when the sandbox's own is replaced.
    """

    workspace_id: str
    token_hash: str
    staff: bool = False


def watched_token(holder: SocketHolder, end: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
    """Watch the token that keeps something open: see the module."""
    grant = SocketGrant(holder.workspace.pk, holder.token_hash, holder.is_staff)
    return watched_grant(grant, revoked_grants, end)


def revoked_grants(grants: Sequence[SocketGrant]) -> dict[SocketGrant, str]:
    """Return the revoked grants, each with a reason. While the database does not answer, none is."""
    try:
        rows = {
            row[0]: row[1:]
            for ids in batches({grant.workspace_id for grant in grants})
            for row in Workspace.objects.filter(pk__in=ids).order_by().values_list(*_COLUMNS)
        }
        staff = _live_staff({grant.token_hash for grant in grants if grant.staff})
    except DatabaseError as exc:
        logger.warning("the tokens of open sockets cannot be checked: %s", exc)
        return {}
    reasons = {grant: _reason(grant, rows.get(grant.workspace_id), staff) for grant in grants}
    return {grant: reason for grant, reason in reasons.items() if reason}


def _live_staff(hashes: set[str]) -> set[str]:
    """Return the hashes of tokens that have not ended. One query, if there are any."""
    live = live_staff_tokens()
    return {found for some in batches(hashes) for found in live.filter(pk__in=some).values_list("pk", flat=True)}


def _reason(grant: SocketGrant, row: tuple[str | None, str, bool, bool, bool] | None, live_staff: set[str]) -> str:
    if row is None:
        return DELETED
    token_hash, status, active, suspended, stopped_by_quota = row
    if status == Status.DELETING:
        return DELETED
    if grant.staff and grant.token_hash not in live_staff:
        return STAFF_ENDED
    if not grant.staff and token_hash != grant.token_hash:
        return REPLACED
    if not active:
        return INACTIVE
    return SUSPENDED if suspended or stopped_by_quota else ""
