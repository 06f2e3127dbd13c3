"""A log file that never holds more than a given number of bytes."""

from __future__ import annotations

import os
from pathlib import Path


class BootLog:
    """Appends console output; at the bound the older half goes. Readers may open the file at any time."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit

    def append(self, data: bytes) -> None:
        """The file is at most `limit` bytes before and after; a reader that has it open keeps what it opened."""
        data = data[-self._limit // 2 :]
        descriptor = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            if file.tell() + len(data) <= self._limit:
                file.write(data)
                return
        self._halve(data)

    def _halve(self, data: bytes) -> None:
        aside = self._path.with_suffix(".log.new")
        with self._path.open("rb") as old, aside.open("wb") as new:
            os.fchmod(new.fileno(), 0o600)
            old.seek(-min(old.seek(0, os.SEEK_END), self._limit // 2), os.SEEK_END)
            new.write(old.read(self._limit // 2) + data)
        aside.replace(self._path)
