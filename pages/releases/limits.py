"""Limits of one export."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExportLimits:
    """Limits of one export. Sizes are bytes.

    `bytes` is the sum of all files; entries that are left out may have as much again.
    """

    bytes: int = 1 << 30
    files: int = 20_000
    file_bytes: int = 100 << 20
    path_bytes: int = 1024

    @property
    def entries(self) -> int:
        """Return the most entries of any kind, with folders and entries that are left out: each costs time, some an
        inode.
        """
        return 4 * self.files

    @property
    def path_steps(self) -> int:
        """Return the most folders on the way to files, and names on the way of links.

        Each costs time, and a path has hundreds.
        """
        return 10 * self.entries
