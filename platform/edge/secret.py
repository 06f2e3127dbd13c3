"""The shared secret that authenticates the edge's requests to the platform. Imports no Django."""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache

HEADER = "X-Edge-Secret"


@lru_cache(maxsize=4)
def edge_secret(secret_key: str) -> str:
    """Derived from the secret key, so that nothing else must be stored or configured."""
    return hmac.new(secret_key.encode(), b"edge", hashlib.sha256).hexdigest()
