"""A clock that goes on evenly while this host is up, whatever the time of the host is set to."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from pathlib import Path

logger = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOST_BYTES = 200


class SteadyClock:
    """Unix time as it was at the first use since the boot, and the time that has passed since. All processes of the
    host that use the file agree.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ahead: float | None = None

    def now(self) -> float:
        """Unix time in seconds; the host's own while the file cannot be written (a full disk)."""
        if self._ahead is None:
            try:
                self._ahead = self._agreed_ahead()
            except OSError as exc:
                logger.warning("the clock of pages is the host's: %s", exc)
                return time.time()
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self._ahead

    def _agreed_ahead(self) -> float:
        """What the file has of this boot; else it is written. Raises OSError."""
        boot_id = _BOOT_ID.read_text().strip()
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            found, _, ahead = os.pread(fd, _MOST_BYTES, 0).decode("ascii", "replace").partition(" ")
            if found == boot_id and (known := _number(ahead)) is not None:
                return known
            new = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
            # Of one length, in one piece.
            os.pwrite(fd, f"{boot_id} {new!r:<40}\n".encode(), 0)
            return new
        finally:
            os.close(fd)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
