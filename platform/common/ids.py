"""Identifiers: `ws_` and 16 lowercase base32 characters, sortable by the time they were made."""

from __future__ import annotations

import secrets
import time

# RFC 4648's base32 characters in ASCII order, so that ids sort as text in the order of their time.
_ALPHABET = "234567abcdefghijklmnopqrstuvwxyz"
_TIME_CHARS = 9  # 45 bits of milliseconds: good until the year 3084
_RANDOM_CHARS = 7


def new_id(prefix: str) -> str:
    """A fresh id such as `ws_2kq7...`; unique by 35 random bits in each millisecond."""
    stamp = int(time.time() * 1000)
    head = "".join(_ALPHABET[(stamp >> (5 * i)) & 31] for i in reversed(range(_TIME_CHARS)))
    return f"{prefix}_{head}{random_suffix(_RANDOM_CHARS)}"


def random_suffix(length: int) -> str:
    """Random lowercase base32 characters, for slugs that are taken. Each is 5 bits of a byte."""
    return "".join(_ALPHABET[byte & 31] for byte in secrets.token_bytes(length))
