"""Disk space that is held by a file without content."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MIB = 1 << 20


class ReserveFile:
    """Disk space that is held by a file without content."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self._path, self.megabytes = path, megabytes

    @property
    def is_held(self) -> bool:
        """Return whether all of the space is allocated. A process that died while it allocated leaves less."""
        try:
            return self._path.stat().st_blocks * 512 >= self.megabytes * MIB
        except OSError:
            return False

    def release_other_size(self) -> None:
        """Release a file that was made for another reserve."""
        with suppress(OSError):
            if self._path.stat().st_size != self.megabytes * MIB:
                self.release()

    def hold(self) -> None:
        """Allocate the space. Raise OSError; nothing is held then.

        Some file systems store no blocks for a file without content: `is_held` tells.
        """
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self.megabytes * MIB)
            os.fsync(descriptor)  # network file systems allocate only then
        except OSError:
            self.release()
            raise
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Give the space back. Idempotent."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
