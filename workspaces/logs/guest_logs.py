"""Logs inside a guest, read and emptied through its session. Names, sizes and contents are a hostile guest's data.

Everything is read from its end and in blocks, so that a log of any size costs the same. What is no regular file (a
device, a folder, a loop of links) is an empty log.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass

from vmbackend.errors import GuestPathInvalid, GuestPathNotFound
from vmbackend.guest.session import Entry, GuestSession
from workspaces.logs.lines import MAX_TAIL_BYTES, whole_lines
from workspaces.logs.sources import FOLDER, OLD_FILES, LogSource, rotated_name

BLOCK = 64 * 1024
LIST_LIMIT = 1000
# A name that is shown and can be asked for. Others in the folder are left alone.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_ABSENT = (GuestPathNotFound, GuestPathInvalid)


@dataclass(frozen=True, slots=True)
class LogFile:
    """`name` is shown, `path` is where it lies in the guest; bytes, seconds since the epoch."""

    name: str
    path: str
    size: int
    modified: float


async def tail(session: GuestSession, path: str, lines: int) -> bytes:
    """The end of a log with at least that many lines, older files included; at most MAX_TAIL_BYTES."""
    found = b""
    for age in range(OLD_FILES + 1):
        found = await _end_of(session, rotated_name(path, age), lines, MAX_TAIL_BYTES - len(found)) + found
        if _enough(found, lines) or len(found) >= MAX_TAIL_BYTES - BLOCK:
            break
    return found


async def files(session: GuestSession, sources: Iterable[LogSource]) -> list[LogFile]:
    """The files of the sources and whatever else lies in the folder of logs, by name."""
    here = await _folder(session)
    found: dict[str, LogFile] = {}
    for source in sources:
        for age in range(OLD_FILES + 1) if source.path else ():
            path = rotated_name(source.path or "", age)
            listed = here.pop(path, None)
            if listed is None and path.startswith(f"{FOLDER}/"):
                continue
            entry = listed if listed and listed.type == "file" else await _stat(session, path)
            if entry is not None:
                name = rotated_name(f"{source.name}.log", age)
                found[name] = LogFile(name, path, entry.size, entry.modified)
    for path, entry in here.items():
        if entry.type == "file" and FILE_NAME.fullmatch(entry.name):
            found.setdefault(entry.name, LogFile(entry.name, path, entry.size, entry.modified))
    return [found[name] for name in sorted(found)]


async def _folder(session: GuestSession) -> dict[str, Entry]:
    with suppress(*_ABSENT):
        listed, _ = await session.list_directory(FOLDER, limit=LIST_LIMIT)
        return {f"{FOLDER}/{entry.name}": entry for entry in listed}
    return {}


def path_of(name: str, sources: Iterable[LogSource]) -> str | None:
    """Where the file of a shown name lies; None for a name that no file has. No name leads out of the known places."""
    if not FILE_NAME.fullmatch(name):
        return None
    for source in sources:
        for age in range(OLD_FILES + 1):
            if source.path is not None and name == rotated_name(f"{source.name}.log", age):
                return rotated_name(source.path, age)
    return f"{FOLDER}/{name}"


async def clear(session: GuestSession, sources: Iterable[LogSource]) -> None:
    """Put an empty file in the place of each log that has something in it.

    Each step is whole; a failure leaves some emptied and some not. Programs that have the old file open go on writing
    to it until their logger looks again, which the kit's does with its next line.
    """
    for file in await files(session, sources):
        if file.size:
            await session.write(file.path, _nothing())


async def _nothing() -> AsyncIterator[bytes]:
    empty: tuple[bytes, ...] = ()
    for chunk in empty:
        yield chunk


async def _end_of(session: GuestSession, path: str, lines: int, most: int) -> bytes:
    found = await _stat(session, path)
    size = min(found.size, most) if found else 0
    block = min(BLOCK, size)
    while block:
        data = await read(session, path, found.size - block, block) if found else b""
        if block == size:
            return whole_lines(data) if found and found.size > size else data
        if _enough(data, lines):
            return whole_lines(data)
        block = min(block * 2, size)
    return b""


async def read(session: GuestSession, path: str, offset: int, length: int) -> bytes:
    """So many bytes at most; none where there is no such file any more."""
    found = bytearray()
    with suppress(*_ABSENT):
        async for chunk in session.read(path, offset=max(0, offset), length=length):
            found += chunk
    return bytes(found[:length])


async def _stat(session: GuestSession, path: str) -> Entry | None:
    with suppress(*_ABSENT):
        found = await session.stat(path)
        return found if found.type == "file" else None
    return None


def _enough(data: bytes, lines: int) -> bool:
    """Twice as many line ends as are wanted: empty lines are left out later."""
    return data.count(b"\n") > 2 * lines
