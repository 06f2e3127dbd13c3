"""Places for the files of one account that this process receives at once: each takes memory and a connection of the
edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from cdn.errors import UploadsAtOnce

UPLOADS_AT_ONCE = 256
RETRY_SECONDS = 2
# Receptions by account, for the one loop of the process.
_receiving: Counter[str] = Counter()


@contextmanager
def upload_place(account_id: str) -> Iterator[None]:
    """Hold a place within the block. Raise UploadsAtOnce if the account has all of its places."""
    if _receiving[account_id] >= UPLOADS_AT_ONCE:
        message = f"This account is sending {UPLOADS_AT_ONCE} files already. Wait until one of them has ended."
        raise UploadsAtOnce(message, headers={"Retry-After": str(RETRY_SECONDS)})
    _receiving[account_id] += 1
    try:
        yield
    finally:
        _receiving[account_id] -= 1
        if not _receiving[account_id]:
            del _receiving[account_id]
