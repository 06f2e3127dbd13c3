"""Tokens of joins: made for staff, shown once, used by one machine."""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now

from common.private_network import AUTHORITY, network_folder, stored_address
from common.secrets_at_rest import keyed_hash, keyed_hashes, new_secret
from hosts.errors import NotOpen, TokenInvalid
from hosts.models import JoinToken
from vmbackend.models import Host

PREFIX = "join_"
SHORTEST, DEFAULT, LONGEST = 60, 600, 3600  # seconds


@dataclass(frozen=True, slots=True)
class NewToken:
    """`text` is shown now and never again; `command` is the line for the new machine."""

    token: JoinToken
    text: str
    command: str


def token_create(*, name: str = "", host: Host | None = None, ttl_seconds: int = DEFAULT, actor: str) -> NewToken:
    """Make a token for one machine. `name`: of the host that it becomes; `host`: one that there is, whose machine was
    replaced, or lost its credentials. Raise NotOpen.

    The text ends with the fingerprint of the certificate authority by which the machine knows this instance.
    """
    address = stored_address(settings.STATE)
    if not address:
        raise NotOpen
    text = f"{new_secret(PREFIX)}.{_fingerprint()}"
    made = JoinToken.objects.create(
        token_hash=keyed_hash(text),
        name=name,
        host=host,
        created_by=actor,
        expires_at=Now() + timedelta(seconds=ttl_seconds),
    )
    made.refresh_from_db()
    control = f"https://{address}:{settings.ENV.private_port}"
    return NewToken(made, text, f"make join CONTROL={control} TOKEN={text}")


def claim_token(text: str, machine_id: str) -> JoinToken:
    """Return the token, which is this machine's from now on; called in the transaction of the join.

    Raise TokenInvalid: unknown, expired, another machine's.
    """
    free_or_own = Q(machine_id="") | Q(machine_id=machine_id)
    found = JoinToken.objects.filter(free_or_own, token_hash__in=keyed_hashes(text), expires_at__gt=Now())
    if not found.update(machine_id=machine_id):
        raise TokenInvalid
    return JoinToken.objects.select_related("host").get(token_hash__in=keyed_hashes(text))


def remove_expired_tokens() -> int:
    """Delete tokens that expired a day ago. Return how many."""
    deleted, _ = JoinToken.objects.filter(expires_at__lt=Now() - timedelta(days=1)).delete()
    return deleted


def _fingerprint() -> str:
    """Return SHA-256 of the authority's certificate, in hexadecimal."""
    text = (network_folder(settings.STATE) / AUTHORITY).read_text()
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text)).hexdigest()
