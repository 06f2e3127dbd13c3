"""Secrets that sign what is sent."""

from __future__ import annotations

import base64
import secrets

PREFIX = "whsec_"
BYTES = 32


def new_signing_secret() -> str:
    """Return `whsec_` and 256 random bits in base64, as Standard Webhooks has it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(BYTES)).decode()
