"""Where the edge finds the files of ACME challenges. Imports no Django."""

from __future__ import annotations

import re
from pathlib import Path

# Of one path segment, as the edge's pattern is (edge/Certificates.template).
TOKEN = re.compile(r"[A-Za-z0-9_-]{20,128}")


def challenges_folder(state: Path) -> Path:
    """Files named by tokens, and nothing else (certificates/tokens.py)."""
    return state / "acme" / "challenges"
