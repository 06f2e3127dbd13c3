"""Access tokens: signed, with scope and expiry, ended with the credential that minted them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.core import signing

from accounts.hooks import Pin
from accounts.scopes import Actor, Scope

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
    """What a token says, its signature and expiry having been checked."""

    credential_id: str
    epoch: int
    scope: Scope
    pin: Pin
    label: str
    expires: int


def mint(*, actor: Actor, scope: Scope, pin: Pin, ttl: int, label: str) -> Minted:
    """Sign a token for `ttl` seconds from now; one made by a token ends with that token at the latest."""
    now = int(time.time())
    expires = min(now + ttl, actor.expires) if actor.expires else now + ttl
    claims = {
        "c": actor.credential_id,
        "e": actor.epoch,
        "s": scope.value,
        "n": pin.namespace_id,
        "ns": pin.namespace_slug,
        "w": pin.workspace_id,
        "l": label,
        "x": expires,
    }
    token = signing.dumps(claims, salt=_SALT)
    return Minted(token, datetime.fromtimestamp(expires, UTC), scope, expires - now)


def read(token: str) -> Claims | None:
    """The token's claims; None where it is not ours, was changed, or has expired."""
    try:
        claims: dict[str, Any] = signing.loads(token, salt=_SALT)
    except signing.BadSignature:
        return None
    if claims["x"] <= time.time():
        return None
    pin = Pin(namespace_id=claims["n"], namespace_slug=claims["ns"], workspace_id=claims["w"])
    return Claims(claims["c"], claims["e"], Scope(claims["s"]), pin, claims["l"], claims["x"])
