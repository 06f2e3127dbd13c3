"""The token of `/metrics`."""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache


@lru_cache(maxsize=4)
def metrics_token(secret_key: str) -> str:
    """Derived from the secret key, so that nothing else must be stored; another key is another token."""
    return hmac.new(secret_key.encode(), b"metrics", hashlib.sha256).hexdigest()
