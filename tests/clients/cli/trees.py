"""Folders, to be compared."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any


def tree_of(folder: Path) -> dict[str, Any]:
    """What a folder has: kinds, modes, contents and targets."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        kind = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (kind, stat.S_IMODE(path.lstat().st_mode))
    return found
