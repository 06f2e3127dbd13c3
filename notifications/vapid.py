"""The key pair of this instance for Web Push (RFC 8292): made once, when it is first needed."""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.db import IntegrityError, transaction

from notifications.models import VapidKey

KEY_BYTES = 32


def vapid_public_key() -> str:
    """Return the key that browsers subscribe with (`applicationServerKey`): an uncompressed point, base64url. One
    query.
    """
    found = VapidKey.objects.values_list("public_key", flat=True).first()
    return found or _key_make().public_key


def vapid_private_key() -> str:
    """Return the private key, base64url. Raise InvalidToken if the keys of this instance cannot read it."""
    found = VapidKey.objects.first() or _key_make()
    return str(found.private_key)


def _key_make() -> VapidKey:
    """Make the key. If two processes make it at once, one succeeds, and both get its key."""
    private = ec.generate_private_key(ec.SECP256R1())
    number = private.private_numbers().private_value.to_bytes(KEY_BYTES, "big")
    point = private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    try:
        with transaction.atomic():
            return VapidKey.objects.create(private_key=_text(number), public_key=_text(point))
    except IntegrityError:
        return VapidKey.objects.get()


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
