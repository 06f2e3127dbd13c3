"""Durations as callers write them: `30m`, `1h`, `1h30m`, `2d`, or a number of seconds."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"([0-9]+)([smhdw])")
MAX_SECONDS = 10 * 365 * 86400


def parse_duration(value: object) -> int:
    """Return seconds. Raise ValueError with a message for anything other than a duration of at most ten years."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("Give a duration such as 30m, 1h or 24h, or a number of seconds.")
    seconds = _from_text(value) if isinstance(value, str) else int(value)
    if not 0 <= seconds <= MAX_SECONDS:
        raise ValueError("The duration must be between 0 and ten years.")
    return seconds


def _from_text(text: str) -> int:
    text = text.strip().lower()
    if re.fullmatch(r"[0-9]{1,12}", text):
        return int(text)
    if len(text) > 40 or not re.fullmatch(r"([0-9]{1,12}[smhdw])+", text):
        raise ValueError("Give a duration such as 30m, 1h or 24h, or a number of seconds.")
    return sum(int(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))


def format_duration(seconds: int) -> str:
    """Return the shortest spelling with one unit: 3600 is `1h`, 90 is `90s`."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNITS[unit] == 0:
            return f"{seconds // _UNITS[unit]}{unit}"
    return f"{seconds}s"
