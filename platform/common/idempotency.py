"""Idempotency keys: how a request names one, and which requests are equal. The rows are `accounts.IdempotencyKey`."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.http import HttpRequest

from common.errors import Conflict, ValidationError

MAX_KEY_LENGTH = 255


class IdempotencyConflict(Conflict):
    """The key was used with another body."""

    code = "idempotency_conflict"
    message = "This idempotency key was used with other options."


def key_of(request: HttpRequest, body: dict[str, Any]) -> str | None:
    """Return the `Idempotency-Key` header or the `idempotency_key` field; both given must be equal."""
    header = request.headers.get("Idempotency-Key")
    field = body.get("idempotency_key")
    if field is not None and not isinstance(field, str):
        raise ValidationError(details={"idempotency_key": ["Not a valid string."]})
    if header and field and header != field:
        raise ValidationError(details={"idempotency_key": ["The header and the field differ."]})
    key = header or field or None
    if key and (len(key) > MAX_KEY_LENGTH or "\0" in key):
        raise ValidationError(details={"idempotency_key": [f"At most {MAX_KEY_LENGTH} characters."]})
    return key


def fingerprint(body: dict[str, Any], *, ignore: frozenset[str]) -> str:
    """Return a hash of the options that identify the request, independent of their order and spacing."""
    kept = {name: value for name, value in body.items() if name not in ignore}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
