"""A log in a folder of the host, and what a follower finds in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from workspaces.logs.follow import Follower, LogChanges, initial_position
from workspaces.logs.lines import LogFormat


class Folder:
    """A log in a folder, rotated as the guest's logger does it."""

    oldest = 3

    def __init__(self, folder: Path, *, log_format: LogFormat = LogFormat.PLAIN) -> None:
        self.log_format = log_format
        self.path = folder / "a.log"
        self.reads = 0
        self.largest = 0

    def at(self, age: int) -> Path:
        return self.path.with_name(f"a.log.{age}") if age else self.path

    def write(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def rotate(self) -> None:
        for age in range(self.oldest, 0, -1):
            if self.at(age - 1).exists():
                self.at(age - 1).replace(self.at(age))

    async def size(self, age: int) -> int | None:
        return self.at(age).stat().st_size if self.at(age).exists() else None

    async def read(self, age: int, offset: int, length: int) -> bytes:
        self.reads += 1
        self.largest = max(self.largest, length)
        if not self.at(age).exists():
            return b""
        with self.at(age).open("rb") as file:
            file.seek(offset)
            return file.read(length)


def polled(follower: Follower) -> LogChanges | None:
    """Poll once, and accept what is new."""
    changes = asyncio.run(follower.poll())
    if changes is not None:
        follower.accept(changes)
    return changes


def everything(follower: Follower) -> tuple[list[bytes], int]:
    """Looks until nothing comes: the lines, and how many gaps were reported."""
    lines, gaps = [], 0
    while (changes := polled(follower)) is not None:
        lines += texts(changes)
        gaps += changes.gap
    return lines, gaps


def begun(log: Folder) -> tuple[Follower, list[bytes]]:
    found = asyncio.run(initial_position(log))
    return Follower(log, found.position), texts(found)


def texts(changes: LogChanges) -> list[bytes]:
    return [line.text for line in changes.lines]
