"""Clock that goes on evenly while this host is up, however the time of the host is set."""

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
    """Clock of Unix time at the first use since the boot, plus the time that has passed since.

    All processes of the host that use the file agree.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ahead: float | None = None

    def now(self) -> float:
        """Return Unix time in seconds; the host's own while the file cannot be written (a full disk)."""
        if self._ahead is None:
            try:
                self._ahead = self._agreed_ahead()
            except OSError as exc:
                logger.warning("pages use the host's clock because the clock file cannot be read or written: %s", exc)
                return time.time()
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self._ahead

    def _agreed_ahead(self) -> float:
        """Return the file's value for this boot; write it if there is none. Raise OSError."""
        boot_id = _BOOT_ID.read_text().strip()
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            found, _, ahead = os.pread(fd, _MOST_BYTES, 0).decode("ascii", "replace").partition(" ")
            if found == boot_id and (known := _number(ahead)) is not None:
                return known
            new = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
            # The line has a fixed length and is written in one piece.
            os.pwrite(fd, f"{boot_id} {new!r:<40}\n".encode(), 0)
            return new
        finally:
            os.close(fd)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
