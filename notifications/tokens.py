"""Send tokens: the only writers of their rows, and who holds one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils import timezone

from accounts.models import Account
from accounts.services import account_lock
from common.database_errors import is_database_unavailable
from common.errors import NotFound, ValidationError
from common.json_objects import is_deeper
from common.request_origin import NO_ORIGIN, RequestOrigin
from common.secrets_at_rest import keyed_hash, new_secret
from notifications.audit import record_token
from notifications.content import compact_size
from notifications.errors import TokenLimitExceeded
from notifications.models import SendToken, TokenStatus
from workspaces.models import Workspace
from workspaces.rows import find_and_lock
from workspaces.states import Status

logger = logging.getLogger(__name__)

PREFIX = "snd_"
SHOWN_CHARACTERS = 12
MOST_OF_WORKSPACE = 100
MOST_METADATA_BYTES = 16 * 1024
MOST_DEPTH = 100
LAST_USED_EVERY = timedelta(minutes=1)
# A workspace in one of these never runs again; code of it that sends is not its own any more.
ENDED = (Status.DELETING, Status.DESTROYED)


@dataclass(frozen=True, slots=True)
class SendTokenHolder:
    """The sender: code with a token. `request.user` of the route that sends."""

    token: SendToken

    @property
    def is_authenticated(self) -> bool:
        """Read by DRF."""
        return True

    @property
    def account(self) -> Account:
        return self.token.account


@transaction.atomic
def token_create(
    *, workspace: Workspace, name: str, metadata: dict[str, Any], actor: str, origin: RequestOrigin = NO_ORIGIN
) -> tuple[SendToken, str]:
    """Create a token of a workspace; return it and its plaintext, which is stored nowhere.

    Raise ValidationError (metadata too large), NotFound (the workspace is being deleted), TokenLimitExceeded.
    """
    _require_small(metadata)
    account_lock(workspace.account)
    # Locked: once it is being deleted no token is added.
    stored = find_and_lock(workspace.pk)
    if stored is None or stored.status in ENDED:
        raise NotFound("There is no such workspace.")
    current = SendToken.objects.filter(workspace=workspace).count()
    if current >= MOST_OF_WORKSPACE:
        raise TokenLimitExceeded(details={"current": current, "max": MOST_OF_WORKSPACE})
    secret = new_secret(PREFIX)
    made = SendToken.objects.create(
        account_id=workspace.account_id,
        workspace_id=workspace.pk,
        name=name,
        metadata=metadata,
        token_hash=keyed_hash(secret),
        token_prefix=secret[:SHOWN_CHARACTERS],
    )
    record_token(made, "created", actor=actor, origin=origin)
    return made, secret


def _require_small(metadata: dict[str, Any]) -> None:
    if is_deeper(metadata, MOST_DEPTH):
        raise ValidationError(details={"metadata": [f"At most {MOST_DEPTH} levels of nesting."]})
    size = compact_size(metadata, "metadata")
    if size > MOST_METADATA_BYTES:
        raise ValidationError(details={"metadata": [f"At most {MOST_METADATA_BYTES} bytes as JSON; it has {size}."]})


@transaction.atomic
def token_revoke(*, token: SendToken, actor: str, origin: RequestOrigin = NO_ORIGIN) -> SendToken:
    """Revoke the token: from now on sends with it are refused. Idempotent. Raise NotFound (deleted by another
    request).
    """
    now = timezone.now()
    active = SendToken.objects.filter(pk=token.pk, status=TokenStatus.ACTIVE)
    if active.update(status=TokenStatus.REVOKED, revoked_at=now):
        record_token(token, "revoked", actor=actor, origin=origin)
    stored = SendToken.objects.filter(pk=token.pk).first()
    if stored is None:
        raise NotFound("There is no such send token.")
    return stored


@transaction.atomic
def token_delete(*, token: SendToken, actor: str, origin: RequestOrigin = NO_ORIGIN) -> None:
    """Remove the row; its audit entries stay. Raise NotFound (deleted by another request)."""
    deleted, _ = SendToken.objects.filter(pk=token.pk).delete()
    if not deleted:
        raise NotFound("There is no such send token.")
    record_token(token, "deleted", actor=actor, origin=origin)


def token_holder(secret: str) -> SendTokenHolder | None:
    """Return the holder of an active token of an active account and of a workspace that has not ended. One query.

    Tokens are found by their keyed hash, so that the time of a request reveals nothing about those that exist.
    """
    if not secret.startswith(PREFIX):
        return None
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    rows = SendToken.objects.select_related("account").filter(
        token_hash__in=[keyed_hash(secret, key) for key in keys],
        status=TokenStatus.ACTIVE,
        account__is_active=True,
    )
    found = rows.exclude(workspace__status__in=ENDED).order_by().first()
    return SendTokenHolder(found) if found else None


def token_used(token: SendToken) -> None:
    """Record the time of use, at most once a minute. A database that cannot write refuses nothing for that."""
    now = timezone.now()
    if token.last_used_at is not None and timedelta(0) <= now - token.last_used_at <= LAST_USED_EVERY:
        return
    try:
        SendToken.objects.filter(pk=token.pk).update(last_used_at=now)
    except DatabaseError as exc:
        if not is_database_unavailable(exc):
            raise
        logger.warning("the use of a send token could not be recorded: %s", exc)
