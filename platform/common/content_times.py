"""Modification times that are made of contents.

The edge makes a file's ETag of its time and size (Caddy's file server). A time made of the content's
hash makes the tag change exactly when the content does: two releases of one second differ, an unchanged file keeps its
tag.
"""

from __future__ import annotations

# 2001 to 2018: never in the future, and neither 0 nor 1, for which Caddy makes no tag.
_FIRST_SECOND = 1_000_000_000
_SECONDS = 1 << 29
_NANOSECONDS = 1_000_000_000


def content_time_ns(digest: str) -> int:
    """Return Unix time in nanoseconds for a hexadecimal SHA-256. Some 2^58 values."""
    number = int(digest[:32], 16)
    seconds, nanoseconds = number % _SECONDS, (number // _SECONDS) % _NANOSECONDS
    return (_FIRST_SECOND + seconds) * _NANOSECONDS + nanoseconds
