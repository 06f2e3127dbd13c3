"""The headers that sign a delivery: Standard Webhooks 1.0, and the platform's own (wire contract, section 7)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"


def signing_key(secret: str) -> bytes:
    """Return the key of `webhook-signature`: what follows `whsec_`, base64-decoded; else the secret's own
    characters.
    """
    if secret.startswith(PREFIX):
        encoded = secret.removeprefix(PREFIX)
        try:
            # Padding may be missing, as other makers of secrets leave it out.
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except binascii.Error:
            key = b""
        if key:
            return key
    return secret.encode()


def signature_headers(*, event_id: str, timestamp: int, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """Return the headers of one attempt. `timestamp`: seconds since 1970 at which it is made; receivers refuse old
    ones.

    `secrets`: the present one first, then the former one while its grace lasts. All of them sign `webhook-signature`,
    which may hold many; `X-Webhook-Signature` holds one, by the present secret.
    """
    signed = f"{event_id}.{timestamp}.".encode() + body
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_standard_signature(secret, signed) for secret in secrets),
        "X-Webhook-Id": event_id,
        "X-Webhook-Signature": hmac.new(secrets[0].encode(), body, hashlib.sha256).hexdigest(),
    }


def _standard_signature(secret: str, signed: bytes) -> str:
    digest = hmac.new(signing_key(secret), signed, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()
