"""Identifiers: `ws_` and 16 lowercase base32 characters, sortable by the time they were made."""

from __future__ import annotations

import secrets
import time
from datetime import datetime

# RFC 4648's base32 characters in ASCII order, so that ids sort as text in the order of their time.
_ALPHABET = "234567abcdefghijklmnopqrstuvwxyz"
_TIME_CHARS = 9  # 45 bits of milliseconds: good until the year 3084
_RANDOM_CHARS = 7


def new_id(prefix: str) -> str:
    """Return a fresh id such as `ws_2kq7...`; unique by 35 random bits in each millisecond."""
    return f"{prefix}_{_time_text(int(time.time() * 1000))}{random_suffix(_RANDOM_CHARS)}"


def first_id(prefix: str, at: datetime) -> str:
    """Return the lowest id of this time: those that were made before sort before it, all others behind it."""
    return f"{prefix}_{_time_text(max(0, int(at.timestamp() * 1000)))}{_ALPHABET[0] * _RANDOM_CHARS}"


def _time_text(milliseconds: int) -> str:
    return "".join(_ALPHABET[(milliseconds >> (5 * i)) & 31] for i in reversed(range(_TIME_CHARS)))


def random_number() -> int:
    """Return a random id that is a number: of 53 bits, which every reader of JSON holds exactly."""
    return secrets.randbelow((1 << 53) - 1) + 1


def random_suffix(length: int) -> str:
    """Return random lowercase base32 characters, for slugs that are taken. Each is 5 bits of a byte."""
    return "".join(_ALPHABET[byte & 31] for byte in secrets.token_bytes(length))
