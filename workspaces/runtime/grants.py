"""The epoch of a runtime's token keeps open what the token opened: it ends within a second of the epoch's end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import DatabaseError

from common.watched_bodies import BodyGrant
from workspaces.data_plane.holders import DELETED, INACTIVE, REPLACED, SUSPENDED
from workspaces.grants import batches
from workspaces.models import Workspace
from workspaces.states import Status

logger = logging.getLogger(__name__)

DISABLED = "the runtime was disabled"
_COLUMNS = (
    "pk", "runtime_enabled", "runtime_epoch", "status", "account__is_active", "namespace__suspended_by_hand",
    "namespace__quota_stops_workspaces",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RuntimeGrant:
    """The epoch that something was opened in."""

    workspace_id: str
    epoch: int


def grant_of(workspace: Workspace) -> BodyGrant:
    """Return what a request of a token's holder ends with."""
    return BodyGrant(RuntimeGrant(workspace.pk, workspace.runtime_epoch), revoked_grants)


def revoked_grants(grants: Sequence[RuntimeGrant]) -> dict[RuntimeGrant, str]:
    """Return the revoked grants, each with a reason. While the database does not answer, none is."""
    try:
        rows = {
            row[0]: row[1:]
            for ids in batches({grant.workspace_id for grant in grants})
            for row in Workspace.objects.filter(pk__in=ids).order_by().values_list(*_COLUMNS)
        }
    except DatabaseError as exc:
        logger.warning("the tokens of open runtimes cannot be checked: %s", exc)
        return {}
    reasons = {grant: _reason(grant, rows.get(grant.workspace_id)) for grant in grants}
    return {grant: reason for grant, reason in reasons.items() if reason}


def _reason(grant: RuntimeGrant, row: tuple[bool, int, str, bool, bool, bool] | None) -> str:
    if row is None:
        return DELETED
    enabled, epoch, status, active, suspended, stopped_by_quota = row
    if status == Status.DELETING:
        return DELETED
    if not enabled:
        return DISABLED
    if epoch != grant.epoch:
        return REPLACED
    if not active:
        return INACTIVE
    return SUSPENDED if suspended or stopped_by_quota else ""
