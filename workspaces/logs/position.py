"""Position of a reader of a log: an offset, and the bytes that show in which file it lies.

Files of a log are found again by their content, as SFTP has no inode numbers. Lines may be padded to one length, so
that after a rotation the last line before an offset has the same end as in the file before; it differs in its time. The
bytes that are compared therefore hold at least the beginning of the last record. Only the files of a log without times
(at a `log_path`) that have the same 10 KiB at the same place, as a line repeated without end, cannot be distinguished.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from workspaces.logs.lines import LogFormat

# More than a record of the guest's logger has (8,240 bytes).
MARK_BYTES = 10 * 1024


class LogFiles(Protocol):
    """One log: the current file (age 0) and the older ones."""

    @property
    def oldest(self) -> int: ...

    @property
    def log_format(self) -> LogFormat: ...

    async def size(self, age: int) -> int | None:
        """Return the size in bytes, or None if there is no such file."""

    async def read(self, age: int, offset: int, length: int) -> bytes:
        """Return at most `length` bytes; none if there is no such file."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The offset up to which a file was read, and a digest of the MARK_BYTES before it, or of all if they are fewer.

    At offset 0 nothing of the log was read, neither of the current file nor of an older one.
    """

    offset: int = 0
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.offset}:{self.mark}"

    @classmethod
    def parse(cls, text: str) -> LogPosition:
        offset, _, mark = text.partition(":")
        return cls(int(offset), mark)


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes of a file from an offset on, and the MARK_BYTES before them, or all if they are fewer."""

    offset: int
    before: bytes
    data: bytes

    @property
    def is_inside(self) -> bool:
        """Return whether the block begins in the middle of a line."""
        return bool(self.before) and not self.before.endswith(b"\n")

    def position(self, end: int) -> LogPosition:
        """Return the position behind its first `end` bytes."""
        before = (self.before + self.data[:end])[-MARK_BYTES:]
        return LogPosition(self.offset + end, _digest(before)) if before else LogPosition(self.offset)

    def begins_at(self, position: LogPosition) -> bool:
        """Return whether the block was read in the file of that position, and begins there."""
        return self.position(0) == position


async def read_block(files: LogFiles, age: int, offset: int, length: int) -> Block:
    """Read at most `length` bytes of a file from an offset on; none if the file is shorter or does not exist."""
    start = max(0, offset - MARK_BYTES)
    found = await files.read(age, start, offset - start + length)
    return Block(offset, found[: offset - start], found[offset - start :])


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
