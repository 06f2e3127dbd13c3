"""Following a log that grows, is rotated by renaming, and is written by a hostile guest.

A position in a log is an offset and a digest of the bytes before it (`position.py`). Each poll reads these bytes again:
if they differ, the log was rotated, and the file is searched for among the older ones and read to its end there.
Nothing stays open, so a position is valid in another process too. Why no library does this: docs/decisions/streams.md.

A log may be rotated between any two reads. Files only become older, one age at a time and the oldest first, so a search
from newer to older ages misses none, and a file that was found at the same age before and after a read of its newer
neighbour had that neighbour all the while.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from workspaces.logs.lines import Line, split_lines, whole_characters, whole_lines
from workspaces.logs.position import Block, LogFiles, LogPosition, read_block

# The most that one poll reads, and the most lines it returns. With four polls a second: 256 KiB, 2,000 lines.
STEP_BYTES = 64 * 1024
STEP_LINES = 500
# If the file grew by more than this, readers get a gap instead of each line. This is more than the guest's logger puts
# into one file, so that lines written while nothing followed the log are still read.
MAX_BEHIND = 1 << 20
SEED_BYTES = 128 * 1024
SEED_LINES = 1000
SEED_ATTEMPTS = 3
# An incomplete line (a prompt) is published after so long without growth.
PARTIAL_SECONDS = 1.0
# A file of an unchanged size is read after so long: it may have been replaced by one of the same size.
RECHECK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class LogChanges:
    """New lines, and the position behind them. `gap`: lines before these are missing."""

    lines: list[Line]
    position: LogPosition
    gap: bool = False


class Follower:
    """Reader of one log from a position, which only `accept` advances: changes that were not published are
    found again.
    """

    def __init__(self, files: LogFiles, position: LogPosition) -> None:
        self._files = files
        self._position = position
        self._size = -1
        self._changed = 0.0
        self._recheck_at = time.monotonic() + RECHECK_SECONDS
        self._in_older = False
        self._hole_at = -1

    def accept(self, changes: LogChanges) -> None:
        """Continue behind these changes, which were published."""
        self._position = changes.position

    async def poll(self) -> LogChanges | None:
        """Return the changes after the position, or None if there are none."""
        size = await self._files.size(0)
        if size is None or not self._is_due(size):
            return None
        self._recheck_at = time.monotonic() + RECHECK_SECONDS
        if not self._position.offset:
            return await self._begin(size)
        block = await self._behind_position(0)
        self._in_older = block is None
        if block is None:
            return await self._rotated()
        if size - self._position.offset > MAX_BEHIND:
            return await self._skip_to(size)
        return self._changes(block, 0)

    def _is_due(self, size: int) -> bool:
        now = time.monotonic()
        if size != self._size:
            self._size, self._changed = size, now
            return True
        return self._in_older or size != self._position.offset or now >= self._recheck_at

    async def _behind_position(self, age: int) -> Block | None:
        """Return the block after the position in a file, or None if the position is in another file."""
        block = await read_block(self._files, age, self._position.offset, STEP_BYTES)
        return block if block.begins_at(self._position) else None

    async def _begin(self, size: int) -> LogChanges | None:
        """Return the beginning of a log that was empty. Another file may have been there if all that are kept have
        content.
        """
        age, block = await self._oldest_content(self._files.oldest + 1) or (0, None)
        if block is None:
            return None
        if age == 0 and size > MAX_BEHIND:
            return await self._skip_to(size)
        return self._changes(block, age, gap=0 < age == self._files.oldest)

    async def _rotated(self) -> LogChanges | None:
        """Return the rest of the file that was being read, which is an older one now; at its end, the next
        newer file.
        """
        for age in range(1, self._files.oldest + 1):
            block = await self._behind_position(age)
            if block is not None:
                return self._changes(block, age) if block.data else await self._newer_than(age)
        return self._changes(await read_block(self._files, 0, 0, STEP_BYTES), 0, gap=True)

    async def _newer_than(self, age: int) -> LogChanges | None:
        """Return the beginning of the file that follows the one at this age, which was read to its end."""
        found = await self._oldest_content(age)
        if found is None or await self._behind_position(age) is None:
            return None
        missing = found[0] != age - 1
        if missing and self._hole_at != age:
            self._hole_at = age  # also seen for a moment during a rotation: only a gap if it is there at the next poll
            return None
        return self._changes(found[1], found[0], gap=missing)

    async def _oldest_content(self, below: int) -> tuple[int, Block] | None:
        """Return age and beginning of the oldest file with content among the files newer than an age.

        Return None if there is no such file yet, or if the log is being rotated.
        """
        for age in range(below - 1, -1, -1):
            block = await read_block(self._files, age, 0, STEP_BYTES)
            if block.data:
                passed = [await self._files.size(other) for other in range(age + 1, below)]
                return None if any(passed) else (age, block)
        return None

    async def _skip_to(self, size: int) -> LogChanges | None:
        block = await read_block(self._files, 0, size - SEED_BYTES, SEED_BYTES)
        if not block.data:
            return None
        lines = _lines_of(block.data, self._files, cut=True)[-STEP_LINES:]
        return LogChanges(lines, block.position(len(block.data)), gap=True)

    def _changes(self, block: Block, age: int, *, gap: bool = False) -> LogChanges | None:
        """Return the complete lines of a block, STEP_LINES at most; part of a line if it is long or the file does not
        grow.
        """
        end = _lines_end(block.data)
        quiet = age > 0 or time.monotonic() - self._changed >= PARTIAL_SECONDS
        if not end and (quiet or len(block.data) >= STEP_BYTES):
            end = whole_characters(block.data) or len(block.data)
        if not end:
            return None
        lines = split_lines(block.data[:end], self._files.log_format, inside=block.is_inside)
        return LogChanges(lines, block.position(end), gap)


def _lines_end(data: bytes) -> int:
    """Return the offset behind the last complete line, or behind the STEP_LINES-th; 0 if there is none."""
    end = 0
    for _ in range(STEP_LINES):
        found = data.find(b"\n", end)
        if found < 0:
            break
        end = found + 1
    return end


async def initial_position(files: LogFiles) -> LogChanges:
    """Return the last complete lines of a log that was not followed before, and the position behind them.

    If the log is rotated during each of SEED_ATTEMPTS attempts, lines may be there twice.
    """
    for _ in range(SEED_ATTEMPTS):
        age, found = await _newest_lines(files)
        again = await read_block(files, age, found.position.offset, 0)
        if again.begins_at(found.position):
            break
    return found


async def _newest_lines(files: LogFiles) -> tuple[int, LogChanges]:
    """Return the lines, the position behind them, and the age of its file."""
    lines: list[Line] = []
    position, in_age = LogPosition(), 0
    for age in range(files.oldest + 1):
        block = await _end_of(files, age)
        end = block.data.rfind(b"\n") + 1 if age == 0 else len(block.data)
        lines = _lines_of(block.data[:end], files, cut=block.offset > 0) + lines
        if not position.offset and block.data:
            position, in_age = block.position(end), age
        if block.offset or len(lines) >= SEED_LINES:
            break
    return in_age, LogChanges(lines[-SEED_LINES:], position)


async def _end_of(files: LogFiles, age: int) -> Block:
    """Return the last SEED_BYTES of a file."""
    size = await files.size(age) or 0
    return await read_block(files, age, max(0, size - SEED_BYTES), SEED_BYTES) if size else Block(0, b"", b"")


def _lines_of(data: bytes, files: LogFiles, *, cut: bool) -> list[Line]:
    """Return the last SEED_LINES lines of a block. A block `cut` at any byte loses its first line, unless it is the
    only one.

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
