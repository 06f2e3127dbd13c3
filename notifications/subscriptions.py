"""Subscriptions of browsers (Web Push): whether one can be sent to. No name is trusted here; each send checks again."""

from __future__ import annotations

import base64
import binascii
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec

from common.errors import ValidationError
from common.outbound_targets import outbound_targets
from outbound.http import OutboundError, require_public_url
from outbound.urls import target_of

AUTH_BYTES = 16
NO_NAME = "The endpoint's host must be a name."
_NO_KEY = "It must be a point of the curve P-256: 65 bytes, base64url."
_NO_SECRET = "It must be 16 bytes, base64url."  # noqa: S105


def subscription_address(*, endpoint: str, p256dh: str, auth: str) -> dict[str, Any]:
    """Return the address of a device. Raise ValidationError by field (an endpoint that is no public place, broken
    keys).

    May look a name up for a second, so it is called outside of transactions.
    """
    problems = {
        "web_push.endpoint": _endpoint_problem(endpoint),
        "web_push.keys.p256dh": "" if _is_point(p256dh) else _NO_KEY,
        "web_push.keys.auth": "" if len(_bytes_of(auth)) == AUTH_BYTES else _NO_SECRET,
    }
    details = {field: [problem] for field, problem in problems.items() if problem}
    if details:
        raise ValidationError(details=details)
    return {"endpoint": endpoint, "p256dh": p256dh.rstrip("="), "auth": auth.rstrip("=")}


def origin_of(endpoint: str) -> str:
    """Return scheme and place: the audience of what is signed for a push service, and what it pauses as."""
    target = target_of(endpoint)
    return f"{target.scheme}://{target.host_header}"


def _endpoint_problem(endpoint: str) -> str:
    try:
        require_public_url(endpoint, outbound_targets())
    except OutboundError as error:
        return error.sentence
    # An audience is a name in the tokens of RFC 8292's libraries; push services have one.
    return NO_NAME if ":" in (urlsplit(endpoint).hostname or "") else ""


def _is_point(text: str) -> bool:
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), _bytes_of(text))
    except ValueError:
        return False
    return len(_bytes_of(text)) == 65


def _bytes_of(text: str) -> bytes:
    """Return the bytes of base64url text, with or without padding; empty for anything else."""
    plain = text.rstrip("=")
    try:
        found = base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
    return found if _text(found) == plain else b""


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
