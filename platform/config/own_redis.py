"""The instance's own Redis: its URL, with the password of the platform's processes. Imports no Django.

They reach it by its Unix socket, which only their user can open. The password is for a Redis that was opened to other
machines: there the user of the processes must not be anybody's.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path


def redis_password(secret_key: str) -> str:
    """Return the password, derived so that nothing else must be stored; empty if there is no key yet."""
    return hmac.new(secret_key.encode(), b"redis", hashlib.sha256).hexdigest() if secret_key else ""


def own_redis_url(state: Path, secret_key: str) -> str:
    """Return the URL; `state` is the state folder under a path short enough for sockets."""
    password = redis_password(secret_key)
    return f"unix://{f':{password}@' if password else ''}{state}/run/redis.sock"
