"""The folder in which the edge finds the files of ACME challenges. Imports no Django."""

from __future__ import annotations

import re
from pathlib import Path

# A token is one path segment, as in the edge's pattern (edge/Certificates.template).
TOKEN = re.compile(r"[A-Za-z0-9_-]{20,128}")


def challenges_folder(state: Path) -> Path:
    """Return files named by tokens, and nothing else (certificates/tokens.py)."""
    return state / "acme" / "challenges"
