"""What keeps a socket open: the token that opened it. Checked for all sockets of a process at once, in one query.

    async with watched_token(holder, end):
        ...

`end` is called with a sentence for the client within a second of the token's end: it was replaced, the sandbox is being
deleted, its account is inactive, nothing may run in its namespace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from django.db import DatabaseError

from common.sse.watched_grants import watched_grant
from sandboxes.models import Sandbox
from sandboxes.tokens import TokenHolder, live_staff_tokens
from workspaces.states import Status
from workspaces.streams.grants import batches

logger = logging.getLogger(__name__)

REPLACED = "the token was replaced"
DELETED = "the sandbox was deleted"
INACTIVE = "the account is not active"
SUSPENDED = "the namespace is suspended"
STAFF_ENDED = "the time of this terminal is over"
_COLUMNS = (
    "pk", "token_hash", "workspace__status", "workspace__account__is_active",
    "workspace__namespace__suspended_by_hand", "workspace__namespace__quota_stops_workspaces",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SandboxGrant:
    """The token that opened a socket. Sockets with equal grants end together.

    `staff`: the hash is that of a token of staff, which does not end when the sandbox's own is replaced.
    """

    sandbox_id: str
    token_hash: str
    staff: bool = False


def watched_token(holder: TokenHolder, end: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
    """For what stays open by a sandbox's token: see the module."""
    staff = holder.staff_hash
    grant = SandboxGrant(holder.sandbox.pk, staff or holder.sandbox.token_hash, bool(staff))
    return watched_grant(grant, revoked_grants, end)


def revoked_grants(grants: Sequence[SandboxGrant]) -> dict[SandboxGrant, str]:
    """The revoked grants, each with a reason. While the database does not answer, none is."""
    try:
        rows = {
            row[0]: row[1:]
            for ids in batches({grant.sandbox_id for grant in grants})
            for row in Sandbox.objects.filter(pk__in=ids).order_by().values_list(*_COLUMNS)
        }
        staff = _live_staff({grant.token_hash for grant in grants if grant.staff})
    except DatabaseError as exc:
        logger.warning("the tokens of open sockets cannot be checked: %s", exc)
        return {}
    reasons = {grant: _reason(grant, rows.get(grant.sandbox_id), staff) for grant in grants}
    return {grant: reason for grant, reason in reasons.items() if reason}


def _live_staff(hashes: set[str]) -> set[str]:
    """Those of these tokens that have not ended. One query, where there are any."""
    live = live_staff_tokens()
    return {found for some in batches(hashes) for found in live.filter(pk__in=some).values_list("pk", flat=True)}


def _reason(grant: SandboxGrant, row: tuple[str, str, bool, bool, bool] | None, live_staff: set[str]) -> str:
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
