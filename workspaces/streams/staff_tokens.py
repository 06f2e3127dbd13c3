"""Tokens by which staff read the event streams of a workspace: short-lived and audited, for one workspace and its
streams only. The streams end with the token, within a second.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.db.models import QuerySet
from django.utils import timezone
from rest_framework.request import Request

from accounts.actors import Actor
from accounts.authentication import AccountAuthentication
from accounts.scopes import Scope
from common.errors import NotFound, Unauthorized
from common.secrets_at_rest import keyed_hash, keyed_hashes, new_secret
from common.wrong_secrets import count_wrong_secret
from workspaces.audit import record_activity
from workspaces.grants import batches
from workspaces.models import StreamToken, Workspace
from workspaces.selectors import NOT_FOUND_MESSAGE
from workspaces.states import Status

logger = logging.getLogger(__name__)

PREFIX = "wst_"
LIFE = timedelta(minutes=15)
VIA = "staff"
ENDED = "the time of this view is over"
PERMISSION = "workspaces.add_streamtoken"


@dataclass(frozen=True, slots=True)
class StaffStreamGrant:
    """The token that opened a stream, by its hash."""

    workspace_id: str
    token_hash: str


@transaction.atomic
def stream_token_create(*, workspace: Workspace, user: User, actor: str) -> str:
    """Return a token by which `user`, of the staff, reads the workspace's streams for LIFE. The owner sees that in the
    activity.

    Raise NotFound (deleted, or being deleted); nothing is left then. Expired tokens are removed.
    """
    if not Workspace.objects.filter(pk=workspace.pk).exclude(status=Status.DELETING).exists():
        raise NotFound(NOT_FOUND_MESSAGE)
    now, token = timezone.now(), new_secret(PREFIX)
    StreamToken.objects.filter(expires_at__lt=now).delete()
    StreamToken.objects.create(token_hash=keyed_hash(token), workspace=workspace, user=user, expires_at=now + LIFE)
    minutes = int(LIFE.total_seconds() // 60)
    record_activity(
        workspace, "staff_view", f"Staff may read its live numbers and console for {minutes} minutes.", actor=actor
    )
    return token


class StreamAuthentication(AccountAuthentication):
    """Authentication of the stream views: as for other views, or by a token of staff, which gives an actor that reaches
    one workspace.
    """

    def authenticate(self, request: Request) -> tuple[Actor, None] | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip().startswith(PREFIX):
            return super().authenticate(request)
        rows = _live_tokens().filter(token_hash__in=keyed_hashes(token.strip()))
        found = rows.select_related("workspace__account").only("token_hash", "user_id", *_READ).first()
        if found is None:
            count_wrong_secret(request._request)
            raise Unauthorized
        workspace = found.workspace
        actor = Actor(
            account=workspace.account,
            scope=Scope.WORKSPACE,
            credential_id=found.token_hash,
            label=f"staff {found.user_id}",
            workspace_id=workspace.pk,
            via=VIA,
        )
        return actor, None


_READ = ("workspace__account__id", "workspace__account__name", "workspace__account__is_active")


def _live_tokens() -> QuerySet[StreamToken]:
    """Return the tokens that have not expired and whose user may still sign in to the admin and get another."""
    users = User.objects.with_perm(PERMISSION).filter(is_staff=True)
    return StreamToken.objects.filter(expires_at__gt=timezone.now(), user__in=users)


def staff_grant_of(actor: Actor) -> StaffStreamGrant:
    return StaffStreamGrant(actor.workspace_id, actor.credential_id)


def revoked_staff_grants(grants: Sequence[StaffStreamGrant]) -> dict[StaffStreamGrant, str]:
    """Return the revoked grants, each with a reason. While the database does not answer, none is."""
    live = _live_tokens()
    try:
        known = {
            key
            for ids in batches({grant.token_hash for grant in grants})
            for key in live.filter(pk__in=ids).values_list("pk", flat=True)
        }
    except DatabaseError as exc:
        logger.warning("the stream tokens of staff cannot be checked: %s", exc)
        return {}
    return {grant: ENDED for grant in grants if grant.token_hash not in known}
