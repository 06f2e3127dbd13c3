"""Modes of files and folders that are their owner's alone, 0600 and 0700, also if an earlier version made them."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


def restrict_modes(path: Path) -> None:
    """Take group's and others' rights from a folder's content and from itself; sockets and links are left alone.

    For the upgrade of a state folder that an earlier version made. Idempotent; skips what disappears during the call.
    """
    for folder, _, names in os.walk(path):
        restrict_mode(Path(folder), 0o700)
        for name in names:
            restrict_mode(Path(folder, name), 0o600)


def restrict_files(folder: Path) -> None:
    """Restrict the files directly in a folder."""
    for entry in folder.iterdir():
        if not entry.is_dir():
            restrict_mode(entry, 0o600)


def restrict_mode(path: Path, mode: int) -> None:
    """Give one file or folder this mode if others have rights that the mode does not give. Idempotent."""
    with suppress(FileNotFoundError):
        found = path.lstat().st_mode
        if (stat.S_ISREG(found) or stat.S_ISDIR(found)) and found & 0o077 & ~mode:
            path.chmod(mode)
