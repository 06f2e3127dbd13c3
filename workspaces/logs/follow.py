"""Following a log that grows, is rotated by renaming, and is written by somebody hostile.

A place in a log is how far it was read and the last bytes before: they are read again each time and compared, so one
look tells whether the file is still the one that was read. If not, it is looked for among the older files, and reading
goes on there. Nothing is kept open, so a place is as good for another process, later.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from workspaces.logs.lines import Line, split_lines, whole_characters, whole_lines

MARK_BYTES = 64
# What is read at a look, and how many lines of it are taken. With four looks a second: 256 KiB, 2,000 lines.
STEP_BYTES = 64 * 1024
STEP_LINES = 500
# A file that runs away further than this is not followed line by line: readers are told of a gap. More than the logger
# of the guest puts into one, so that what a follower missed while there was none is still read.
MAX_BEHIND = 1 << 20
SEED_BYTES = 128 * 1024
SEED_LINES = 1000
# A line without an end (a prompt) is told when nothing came for so long.
PARTIAL_SECONDS = 1.0


class LogFiles(Protocol):
    """One log: the file that is written to (age 0), and the older ones. A `console`'s lines begin with their times."""

    @property
    def oldest(self) -> int: ...

    @property
    def console(self) -> bool: ...

    async def size(self, age: int) -> int | None:
        """Bytes; None where there is no such file."""

    async def read(self, age: int, offset: int, length: int) -> bytes:
        """So many bytes at most; none where there is no such file."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far a log was read, and the bytes before."""

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
    """What came, and where the log is read on from once that was told. `gap`: before these lines some are missing."""

    lines: list[Line]
    place: LogPosition
    gap: bool = False


class Follower:
    """Reads one log on from a place. `place` moves only by `told`, so that a look that was not told is repeated."""

    def __init__(self, files: LogFiles, place: LogPosition) -> None:
        self._files = files
        self._place = place
        self._size = -1
        self._changed = 0.0
        self._in_older = False

    def told(self, look: LogChanges) -> None:
        self._place = look.place

    async def look(self) -> LogChanges | None:
        """What came since; None where nothing did."""
        size = await self._files.size(0)
        if size is None or not self._is_due(size):
            return None
        place = self._place
        skip = len(place.mark)
        data = await self._files.read(0, place.offset - skip, skip + STEP_BYTES)
        self._in_older = size < place.offset or not data.startswith(place.mark)
        if self._in_older:
            return await self._moved()
        if size - place.offset > MAX_BEHIND:
            return await self._skip_to(size)
        return self._cut(data[skip:])

    def _is_due(self, size: int) -> bool:
        now = time.monotonic()
        if size != self._size:
            self._size, self._changed = size, now
            return True
        return self._in_older or size != self._place.offset

    def _cut(self, data: bytes) -> LogChanges | None:
        """Whole lines of a block, so many at most; a part of one where it is long or nothing follows."""
        end = _lines_end(data)
        if not end and (len(data) >= STEP_BYTES or time.monotonic() - self._changed >= PARTIAL_SECONDS):
            end = _end(data)
        return self._look(data, end, self._place) if end else None

    async def _skip_to(self, size: int) -> LogChanges:
        data = await self._files.read(0, size - SEED_BYTES, SEED_BYTES)
        place = LogPosition(size - SEED_BYTES).after(data)
        return LogChanges(_lines_of(data, self._files, cut=True)[-STEP_LINES:], place, gap=True)

    async def _moved(self) -> LogChanges:
        """On in an older file, which is the one that was read until now, or in what followed that."""
        place = self._place
        skip = len(place.mark)
        for age in range(1, self._files.oldest + 1):
            data = await self._files.read(age, place.offset - skip, skip + STEP_BYTES)
            if data.startswith(place.mark):
                rest = data[skip:]
                # Nothing is added to an older file: what is left without an end is told as it is.
                return self._look(rest, _end(rest), place) if rest else await self._begin(age - 1)
        return LogChanges([], LogPosition(), gap=True)

    async def _begin(self, age: int) -> LogChanges:
        """The beginning of a file; of the newest the next look reads it."""
        data = await self._files.read(age, 0, STEP_BYTES) if age else b""
        return self._look(data, _end(data), LogPosition())

    def _look(self, data: bytes, end: int, place: LogPosition) -> LogChanges:
        lines = split_lines(data[:end], console=self._files.console, inside=place.is_inside)
        return LogChanges(lines, place.after(data[:end]))


def _end(data: bytes) -> int:
    """Behind the last whole line that is taken; of a line that has no end yet, behind its last whole character."""
    return _lines_end(data) or whole_characters(data) or len(data)


def _lines_end(data: bytes) -> int:
    """Behind the last line that is whole, or the STEP_LINES-th; 0 where none is."""
    end = 0
    for _ in range(STEP_LINES):
        found = data.find(b"\n", end)
        if found < 0:
            break
        end = found + 1
    return end


async def initial_position(files: LogFiles) -> LogChanges:
    """The newest whole lines of a log that nobody has followed yet, and the place behind them."""
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
    """From where an older file was read, and its lines."""
    size = await files.size(age)
    start = max(0, (size or 0) - SEED_BYTES)
    data = await files.read(age, start, SEED_BYTES) if size else b""
    return start, _lines_of(data, files, cut=start > 0)


def _lines_of(data: bytes, files: LogFiles, *, cut: bool) -> list[Line]:
    """The lines of a block; of one that was `cut` anywhere without its first, if there are more."""
    return split_lines(whole_lines(data) if cut else data, console=files.console, inside=cut and b"\n" not in data)
