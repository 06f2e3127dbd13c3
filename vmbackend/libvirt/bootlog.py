"""Writing a console log (`vmbackend.bootlog`) of limited size."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from vmbackend.bootlog import rotated_path, timestamp_prefix

log = logging.getLogger(__name__)


class BootLog:
    """Appends console output; at the size limit the older file is dropped. Readers may open the files at any time."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._half = limit // 2

    def append(self, data: bytes) -> None:
        """Append console output.

        Both files together never exceed `limit` bytes; open readers keep reading the rotated file. Not thread-safe.
        Output is lost if the disk is full or the process dies during the call.
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
            # Each file begins with a timestamp, also in the middle of a line, so that a reader can rely on it.
            stamped = self._stamped(data, fresh=True)
        descriptor = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(_newest(stamped, self._half))

    def _end(self) -> tuple[int, bytes]:
        """Return the file's size and its last byte; an empty or missing file counts as ending with a newline."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(-min(size, 1), os.SEEK_END)
                return size, file.read(1) or b"\n"
        except FileNotFoundError:
            return 0, b"\n"

    def _stamped(self, data: bytes, *, fresh: bool) -> bytes:
        now = timestamp_prefix()
        # Empty lines get one, too: otherwise a guest could forge a timestamp.
        whole = (now if fresh else b"") + data.replace(b"\n", b"\n" + now)
        return whole.removesuffix(now) if data.endswith(b"\n") else whole


def _newest(data: bytes, size: int) -> bytes:
    """Return at most the last `size` bytes, from the beginning of a line if there is one, else after a new
    timestamp.
    """
    if len(data) <= size:
        return data
    tail, now = data[-size:], timestamp_prefix()
    return tail.split(b"\n", 1)[-1] if b"\n" in tail[:-1] else now + tail[len(now) :]
