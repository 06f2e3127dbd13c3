"""How much one export may hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExportLimits:
    """Sizes are bytes. `bytes` is the sum of all files; what is left out may have as much again."""

    bytes: int = 1 << 30
    files: int = 20_000
    file_bytes: int = 100 << 20
    path_bytes: int = 1024

    @property
    def entries(self) -> int:
        """Entries of any kind, folders and what is left out included: each costs time, and some cost an inode."""
        return 4 * self.files

    @property
    def path_steps(self) -> int:
        """Folders on the ways to files, and names on the ways of links: each costs time, and a path has hundreds."""
        return 10 * self.entries
