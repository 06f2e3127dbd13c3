"""Following a log that grows, is rotated by renaming, and is written by a hostile guest.

A position in a log is an offset and the last bytes before it. Each poll reads these bytes again and compares them: if
they differ, the log was rotated, and the file is searched for among the older ones and read to its end there. Nothing
stays open, so a position is valid in another process too. Why no library does this: docs/decisions.md.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from workspaces.logs.lines import Line, LogFormat, split_lines, whole_characters, whole_lines

MARK_BYTES = 64
# The most that one poll reads, and the most lines it returns. With four polls a second: 256 KiB, 2,000 lines.
STEP_BYTES = 64 * 1024
STEP_LINES = 500
# If the file grew by more than this, readers get a gap instead of each line. More than the guest's logger puts into one
# file, so that lines written while nothing followed the log are still read.
MAX_BEHIND = 1 << 20
SEED_BYTES = 128 * 1024
SEED_LINES = 1000
# An incomplete line (a prompt) is published after so long without growth.
PARTIAL_SECONDS = 1.0


class LogFiles(Protocol):
    """One log: the current file (age 0) and the older ones."""

    @property
    def oldest(self) -> int: ...

    @property
    def log_format(self) -> LogFormat: ...

    async def size(self, age: int) -> int | None:
        """In bytes; None if there is no such file."""

    async def read(self, age: int, offset: int, length: int) -> bytes:
        """At most `length` bytes; none if there is no such file."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The offset up to which a log was read, and the bytes before it."""

    offset: int = 0
    mark: bytes = b""

    def __str__(self) -> str:
        return f"{self.offset}:{self.mark.hex()}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        offset, _, mark = text.partition(":")
        return cls(int(offset), bytes.fromhex(mark))

    @property
    def is_inside(self) -> bool:
        """Whether it is in the middle of a line."""
        return bool(self.mark) and not self.mark.endswith(b"\n")

    def after(self, read: bytes) -> LogPosition:
        return LogPosition(self.offset + len(read), (self.mark + read)[-MARK_BYTES:])


@dataclass(frozen=True, slots=True)
class LogChanges:
    """New lines, and the position behind them. `gap`: lines before these are missing."""

    lines: list[Line]
    position: LogPosition
    gap: bool = False


class Follower:
    """Reads one log from a position, which only `accept` advances: changes that were not published are found again."""

    def __init__(self, files: LogFiles, position: LogPosition) -> None:
        self._files = files
        self._position = position
        self._size = -1
        self._changed = 0.0
        self._in_older = False

    def accept(self, changes: LogChanges) -> None:
        """These changes were published: go on behind them."""
        self._position = changes.position

    async def poll(self) -> LogChanges | None:
        """What is new behind the position, or None."""
        size = await self._files.size(0)
        if size is None or not self._is_due(size):
            return None
        position = self._position
        skip = len(position.mark)
        data = await self._files.read(0, position.offset - skip, skip + STEP_BYTES)
        self._in_older = size < position.offset or not data.startswith(position.mark)
        if self._in_older:
            return await self._rotated()
        if size - position.offset > MAX_BEHIND:
            return await self._skip_to(size)
        return self._cut(data[skip:])

    def _is_due(self, size: int) -> bool:
        now = time.monotonic()
        if size != self._size:
            self._size, self._changed = size, now
            return True
        return self._in_older or size != self._position.offset

    def _cut(self, data: bytes) -> LogChanges | None:
        """The complete lines of a block, STEP_LINES at most; part of a line if it is long or the log does not grow."""
        end = _lines_end(data)
        if not end and (len(data) >= STEP_BYTES or time.monotonic() - self._changed >= PARTIAL_SECONDS):
            end = _end(data)
        return self._changes(data, end, self._position) if end else None

    async def _skip_to(self, size: int) -> LogChanges:
        data = await self._files.read(0, size - SEED_BYTES, SEED_BYTES)
        position = LogPosition(size - SEED_BYTES).after(data)
        return LogChanges(_lines_of(data, self._files, cut=True)[-STEP_LINES:], position, gap=True)

    async def _rotated(self) -> LogChanges:
        """The rest of the file that was being read, which is an older one now; at its end, the next newer file."""
        position = self._position
        skip = len(position.mark)
        for age in range(1, self._files.oldest + 1):
            data = await self._files.read(age, position.offset - skip, skip + STEP_BYTES)
            if data.startswith(position.mark):
                rest = data[skip:]
                # An older file does not grow: its last line is published without an end.
                return self._changes(rest, _end(rest), position) if rest else await self._begin(age - 1)
        return LogChanges([], LogPosition(), gap=True)

    async def _begin(self, age: int) -> LogChanges:
        """The beginning of a file; that of the current one is left to the next poll."""
        data = await self._files.read(age, 0, STEP_BYTES) if age else b""
        return self._changes(data, _end(data), LogPosition())

    def _changes(self, data: bytes, end: int, position: LogPosition) -> LogChanges:
        lines = split_lines(data[:end], self._files.log_format, inside=position.is_inside)
        return LogChanges(lines, position.after(data[:end]))


def _end(data: bytes) -> int:
    """Behind the last complete line within the limit; in a line without an end, behind its last whole character."""
    return _lines_end(data) or whole_characters(data) or len(data)


def _lines_end(data: bytes) -> int:
    """Behind the last complete line, or the STEP_LINES-th; 0 if there is none."""
    end = 0
    for _ in range(STEP_LINES):
        found = data.find(b"\n", end)
        if found < 0:
            break
        end = found + 1
    return end


async def initial_position(files: LogFiles) -> LogChanges:
    """The last complete lines of a log that was not followed before, and the position behind them."""
    size = await files.size(0) or 0
    start = max(0, size - SEED_BYTES)
    data = await files.read(0, start, size - start) if size else b""
    end = data.rfind(b"\n") + 1
    lines = _lines_of(data[:end], files, cut=start > 0)
    for age in range(1, files.oldest + 1):
        if start or len(lines) >= SEED_LINES:
            break
        start, older = await _end_of(files, age)
        lines = older + lines
    return LogChanges(lines[-SEED_LINES:], LogPosition(size - len(data)).after(data[:end]))


async def _end_of(files: LogFiles, age: int) -> tuple[int, list[Line]]:
    """The last lines of an older file, and the offset from which they were read."""
    size = await files.size(age)
    start = max(0, (size or 0) - SEED_BYTES)
    data = await files.read(age, start, SEED_BYTES) if size else b""
    return start, _lines_of(data, files, cut=start > 0)


def _lines_of(data: bytes, files: LogFiles, *, cut: bool) -> list[Line]:
    """The last SEED_LINES lines of a block. A block `cut` at any byte loses its first line, unless it is the only one.

    Others are dropped before they are parsed: a guest can write 128 KiB of empty lines, and all logs share one loop.
    """
    block = _last_lines(whole_lines(data) if cut else data)
    return split_lines(block, files.log_format, inside=cut and b"\n" not in data)


def _last_lines(data: bytes) -> bytes:
    start = len(data)
    for _ in range(SEED_LINES + 1):  # the first end found is that of the last line
        start = data.rfind(b"\n", 0, start)
        if start < 0:
            return data
    return data[start + 1 :]
