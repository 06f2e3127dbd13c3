"""Labels of hosts, which staff give, and for which creates may ask."""

from __future__ import annotations

import re
from collections.abc import Mapping

MOST_LABELS = 32
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9._-]{0,63}")


def is_label(name: str, value: str) -> bool:
    """Return whether a host may have a label of this name and value; `*` stands for any value in settings."""
    return bool(_NAME.fullmatch(name)) and (value == "*" or bool(_VALUE.fullmatch(value)))


def find_problem(labels: Mapping[str, str], zone: str) -> str:
    """Return why a host cannot have these labels and this zone; empty: it can."""
    if len(labels) > MOST_LABELS:
        return f"A host has at most {MOST_LABELS} labels."
    for name, value in labels.items():
        if value == "*" or not is_label(name, value):
            return f"{name}={value} is no label: both have at most 63 letters, digits, dots, hyphens and underscores."
    return "" if _VALUE.fullmatch(zone) else "A zone has at most 63 letters, digits, dots, hyphens and underscores."
