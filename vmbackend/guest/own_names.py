"""Names that the platform gives to what it keeps for a moment in a machine's folders (`src/own_names.c`)."""

from __future__ import annotations

import re

_OWN = re.compile(r"\.(partial|files)-[0-9a-f]{16}|\.ask-[0-9A-Za-z]{6}", re.ASCII)
# The same in the syntax of gitignore.
OWN_PATTERNS = (f".partial-{'[0-9a-f]' * 16}", f".files-{'[0-9a-f]' * 16}", f".ask-{'[0-9A-Za-z]' * 6}")


def is_own_name(name: str) -> bool:
    return _OWN.fullmatch(name) is not None
