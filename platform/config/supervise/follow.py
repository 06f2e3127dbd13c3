"""Follows the log files of an instance and shows their new lines, each with the process's name before it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

_LONGEST_LINE = 64 * 1024


class LogFile:
    """One log that grows, is rotated (renamed, made anew) or does not exist yet."""

    def __init__(self, path: Path, tail_lines: int | None = None) -> None:
        """Start at the end; with `tail_lines`, that many lines before it."""
        self.path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        if path.exists():
            self._file = path.open("rb")
            self._file.seek(_tail_offset(path, tail_lines or 0))

    def lines(self) -> list[str]:
        """The complete lines since the last call, the end of a rotated file included."""
        if self._file is None and not self._open():
            return []
        found = self._read()
        if self._was_rotated():
            found += self._read()  # what came between the read above and the rename
            self._close()
            if self._open():
                found += self._read()
        return found

    def _read(self) -> list[str]:
        assert self._file is not None  # noqa: S101 - narrows the type
        *complete, self._rest = (self._rest + self._file.read()).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            complete, self._rest = [*complete, self._rest], b""
        return [item.decode(errors="replace").rstrip("\r") for item in complete]

    def _was_rotated(self) -> bool:
        assert self._file is not None  # noqa: S101 - narrows the type
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return False  # in the middle of a rotation
        mine = self.path.__class__(f"/proc/self/fd/{self._file.fileno()}").stat()
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino) or now.st_size < self._file.tell()

    def _open(self) -> bool:
        try:
            self._file = self.path.open("rb")
        except FileNotFoundError:
            return False
        return True

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._rest = None, b""


def follow(
    logs: Iterable[Path],
    show: Callable[[str, str], None],
    stop: threading.Event,
    *,
    tail_lines: int = 0,
    interval: float = 0.2,
) -> None:
    """Show new lines as `show(name, line)` until `stop` is set; then what is left, once."""
    files = [(path.stem, LogFile(path, tail_lines)) for path in logs]
    last = False
    while not last:
        last = stop.is_set()
        for name, file in files:
            for text in file.lines():
                show(name, text)
        if not last:
            time.sleep(interval)


def _tail_offset(path: Path, lines: int) -> int:
    size = path.stat().st_size
    start = max(0, size - 200 * lines)
    if lines == 0:
        return size
    with path.open("rb") as file:
        file.seek(start)
        block = file.read(size - start)
    if start:
        start += block.find(b"\n") + 1
        block = block[block.find(b"\n") + 1 :]
    surplus = block.count(b"\n") - lines
    return start + (len(b"".join(block.splitlines(keepends=True)[:surplus])) if surplus > 0 else 0)
