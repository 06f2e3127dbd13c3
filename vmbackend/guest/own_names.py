"""Names that the platform gives to what it keeps for a moment in a machine's folders (`src/own_names.c`)."""

from __future__ import annotations

import re

_PREFIXES = ("partial", "files", "ask")
_DIGITS = 16  # with fewer a user's own name would be hidden
_OWN = re.compile(rf"\.({'|'.join(_PREFIXES)})-[0-9a-f]{{{_DIGITS}}}", re.ASCII)
# The same in the syntax of gitignore.
OWN_PATTERNS = tuple(f".{prefix}-{'[0-9a-f]' * _DIGITS}" for prefix in _PREFIXES)


def is_own_name(name: str) -> bool:
    return _OWN.fullmatch(name) is not None
