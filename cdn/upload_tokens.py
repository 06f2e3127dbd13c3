"""Upload tokens of existing clients: short-lived, signed, and ended with the credential that asked for them.

A token reserves nothing: each upload by it makes a permit for the size that comes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core import signing
from django.db import DatabaseError
from django.db.models import QuerySet

from accounts.actors import Actor
from accounts.models import Account, Credential
from common.batches import batched
from namespaces.models import Namespace

logger = logging.getLogger(__name__)

SECONDS, SHOWN_SECONDS = 60, "1m"
SCOPE, PERMISSIONS = "user", ("upload",)
_SALT = "cdn.upload-token"
# The contents of a token are limited by its fields; a longer token is not valid.
MAX_CHARS = 64 * 1024
# Credentials in one query.
CHECKED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class UploadTerms:
    """Terms of each file that is uploaded by a token. `namespace` None: the file is unassigned."""

    namespace: Namespace | None
    tags: list[str] = field(default_factory=list)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """Credential that a token was asked for with, as it was then."""

    credential_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class UploadHolder:
    """Holder of a valid token. `label`: for audit entries."""

    account: Account
    terms: UploadTerms
    label: str
    grant: TokenGrant
    is_authenticated: bool = True


class UploadTokenForged(Exception):
    """Error of a token that the platform has not signed."""


def upload_token_mint(actor: Actor, terms: UploadTerms) -> str:
    """Return a token for a minute. If an access token asked for it, it ends with that token at the latest."""
    ends = int(time.time()) + SECONDS
    claims = {
        "c": actor.credential_id,
        "e": actor.epoch,
        "n": terms.namespace.pk if terms.namespace else "",
        "t": terms.tags,
        "v": terms.variants,
        "m": terms.metadata,
        "l": actor.label,
        "x": min(ends, actor.expires) if actor.expires else ends,
    }
    return signing.dumps(claims, salt=_SALT, compress=True)


def upload_token_holder(token: str) -> UploadHolder | None:
    """Return the holder; None if the token has expired, or its credential, account or namespace is gone.

    Raise UploadTokenForged.
    """
    claims = _claims(token)
    if claims["x"] <= time.time():
        return None
    grant = TokenGrant(claims["c"], claims["e"])
    found = _active_credentials([grant]).filter(epoch=grant.epoch)
    credential = found.select_related("account").first()
    if credential is None:
        return None
    namespace = None
    if claims["n"]:
        namespace = Namespace.objects.filter(pk=claims["n"], account=credential.account, deleted_at=None).first()
        if namespace is None:
            return None
    terms = UploadTerms(namespace, claims["t"], claims["v"], claims["m"])
    return UploadHolder(credential.account, terms, claims["l"], grant)


def ended_grants(grants: Sequence[TokenGrant]) -> dict[TokenGrant, str]:
    """Return the grants whose credential is not valid any more, each with a reason.

    While the database does not answer, none is returned.
    """
    try:
        valid = {
            TokenGrant(*row)
            for some in batched(grants, CHECKED_AT_ONCE)
            for row in _active_credentials(some).values_list("pk", "epoch")
        }
    except DatabaseError as error:
        logger.warning("the credentials of uploads by token cannot be checked, and the uploads go on: %s", error)
        return {}
    return {grant: "the credential is not valid any more" for grant in grants if grant not in valid}


def _active_credentials(grants: Sequence[TokenGrant]) -> QuerySet[Credential]:
    ids = [grant.credential_id for grant in grants]
    return Credential.objects.filter(pk__in=ids, account__is_active=True)


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a token. Raise UploadTokenForged."""
    if len(token) > MAX_CHARS:
        raise UploadTokenForged
    try:
        claims: dict[str, Any] = signing.loads(token, salt=_SALT)
    except signing.BadSignature as exc:
        raise UploadTokenForged from exc
    return claims
