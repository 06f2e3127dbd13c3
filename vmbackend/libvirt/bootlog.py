"""Writing a console's log (`vmbackend.bootlog`) within a given number of bytes."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from vmbackend.bootlog import rotated_path, timestamp_prefix

log = logging.getLogger(__name__)


class BootLog:
    """Appends console output; at the bound the older file goes. Readers may open the files at any time."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._half = limit // 2

    def append(self, data: bytes) -> None:
        """The files hold at most `limit` bytes before and after; a reader that has one open keeps what it opened.

        One call at a time. What a full disk refuses is lost, as are the bytes of a call in which the process dies.
        """
        try:
            self._append(data)
        except OSError as exc:
            log.warning("%s: %s", self._path, exc)

    def _append(self, data: bytes) -> None:
        size, last = self._end()
        stamped = self._stamped(data, fresh=last == b"\n")
        if size and size + len(stamped) > self._half:
            with suppress(FileNotFoundError):  # cleared just now
                self._path.replace(rotated_path(self._path))
            # Each file begins with a stamp, also in the middle of a line: nobody could tell what stands there else.
            stamped = self._stamped(data, fresh=True)
        descriptor = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(_newest(stamped, self._half))

    def _end(self) -> tuple[int, bytes]:
        """The file's size and its last byte; a file that is empty or missing ends with a line."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(-min(size, 1), os.SEEK_END)
                return size, file.read(1) or b"\n"
        except FileNotFoundError:
            return 0, b"\n"

    def _stamped(self, data: bytes, *, fresh: bool) -> bytes:
        now = timestamp_prefix()
        # A line that is empty gets one too: a guest could otherwise choose what stands where a stamp is looked for.
        whole = (now if fresh else b"") + data.replace(b"\n", b"\n" + now)
        return whole.removesuffix(now) if data.endswith(b"\n") else whole


def _newest(data: bytes, size: int) -> bytes:
    """The last `size` bytes at most, from the start of a line where there is one, else from a stamp."""
    if len(data) <= size:
        return data
    kept, now = data[-size:], timestamp_prefix()
    return kept.split(b"\n", 1)[-1] if b"\n" in kept[:-1] else now + kept[len(now) :]
