"""Access tokens: signed, with scope and expiry, revoked with the credential that minted them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.core import signing

from accounts.actors import Actor
from accounts.scopes import Scope, ScopeBinding

_SALT = "accounts.access-token"


@dataclass(frozen=True, slots=True)
class Minted:
    """A token, shown once. `ttl` in seconds."""

    token: str
    expires_at: datetime
    scope: Scope
    ttl: int


@dataclass(frozen=True, slots=True)
class Claims:
    """The content of a token whose signature is valid. `expires`: seconds since the epoch."""

    credential_id: str
    epoch: int
    scope: Scope
    binding: ScopeBinding
    label: str
    expires: int

    @property
    def has_expired(self) -> bool:
        return self.expires <= time.time()


def mint_token(*, actor: Actor, scope: Scope, binding: ScopeBinding, ttl: int, label: str) -> Minted:
    """Sign a token for `ttl` seconds from now; a token minted by a token expires with that token at the latest."""
    now = int(time.time())
    expires = min(now + ttl, actor.expires) if actor.expires else now + ttl
    claims = {
        "c": actor.credential_id,
        "e": actor.epoch,
        "s": scope.value,
        "n": binding.namespace_id,
        "ns": binding.namespace_slug,
        "w": binding.workspace_id,
        "l": label,
        "x": expires,
    }
    token = signing.dumps(claims, salt=_SALT)
    return Minted(token, datetime.fromtimestamp(expires, UTC), scope, expires - now)


def read_token(token: str) -> Claims | None:
    """Return the claims of a token that was signed here, also of one that has expired; None for any other."""
    try:
        claims: dict[str, Any] = signing.loads(token, salt=_SALT)
    except signing.BadSignature:
        return None
    binding = ScopeBinding(namespace_id=claims["n"], namespace_slug=claims["ns"], workspace_id=claims["w"])
    return Claims(claims["c"], claims["e"], Scope(claims["s"]), binding, claims["l"], claims["x"])
