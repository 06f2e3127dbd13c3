"""Where the edge finds the files of ACME challenges. Imports no Django."""

from __future__ import annotations

from pathlib import Path


def challenges_folder(state: Path) -> Path:
    """Files named by tokens, and nothing else (certificates/tokens.py)."""
    return state / "acme" / "challenges"
