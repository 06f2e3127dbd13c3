"""Logs inside a guest, read and emptied through its session. Names, sizes and contents are a hostile guest's data.

Logs are read from their end in blocks, so that a log of any size costs the same. Anything but a regular file (a
device, a directory, a loop of links) is an empty log.
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
# Names that are listed and can be requested. Other files in the directory are ignored.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_ABSENT = (GuestPathNotFound, GuestPathInvalid)


@dataclass(frozen=True, slots=True)
class LogFile:
    """Log file. `name` is its public name, `path` the one in the guest; `size` in bytes, `modified` in seconds since
    the epoch.
    """

    name: str
    path: str
    size: int
    modified: float


async def read_tail(session: GuestSession, path: str, lines: int) -> bytes:
    """Return the end of a log with at least that many lines, older files included; at most MAX_TAIL_BYTES."""
    found = b""
    for age in range(OLD_FILES + 1):
        found = await _end_of(session, rotated_name(path, age), lines, MAX_TAIL_BYTES - len(found)) + found
        if _enough(found, lines) or len(found) >= MAX_TAIL_BYTES - BLOCK:
            break
    return found


async def log_files(session: GuestSession, sources: Iterable[LogSource]) -> list[LogFile]:
    """Return the files of the sources and all others in the directory of logs, by name."""
    in_folder = await _folder(session)
    found: dict[str, LogFile] = {}
    for source in sources:
        for age in range(OLD_FILES + 1) if source.path else ():
            path = rotated_name(source.path or "", age)
            listed = in_folder.pop(path, None)
            if listed is None and path.startswith(f"{FOLDER}/"):
                continue
            entry = listed if listed and listed.type == "file" else await _stat(session, path)
            if entry is not None:
                name = rotated_name(f"{source.name}.log", age)
                found[name] = LogFile(name, path, entry.size, entry.modified)
    for path, entry in in_folder.items():
        if entry.type == "file" and FILE_NAME.fullmatch(entry.name):
            found.setdefault(entry.name, LogFile(entry.name, path, entry.size, entry.modified))
    return [found[name] for name in sorted(found)]


async def _folder(session: GuestSession) -> dict[str, Entry]:
    with suppress(*_ABSENT):
        listed, _ = await session.list_directory(FOLDER, limit=LIST_LIMIT)
        return {f"{FOLDER}/{entry.name}": entry for entry in listed}
    return {}


def path_of(name: str, sources: Iterable[LogSource]) -> str | None:
    """Return the path of a listed name, or None if the name is not valid. No name leads outside the directory and the
    sources.
    """
    if not FILE_NAME.fullmatch(name):
        return None
    for source in sources:
        for age in range(OLD_FILES + 1):
            if source.path is not None and name == rotated_name(f"{source.name}.log", age):
                return rotated_name(source.path, age)
    return f"{FOLDER}/{name}"


async def clear_logs(session: GuestSession, sources: Iterable[LogSource]) -> None:
    """Replace each log that is not empty by an empty file.

    Each replacement is atomic; after a failure some logs are empty and some are not. Programs that have the old file
    open continue to write to it until their logger reopens it, which the kit's does with its next line.
    """
    for file in await log_files(session, sources):
        if file.size:
            await session.write(file.path, _no_chunks())


async def _no_chunks() -> AsyncIterator[bytes]:
    empty: tuple[bytes, ...] = ()
    for chunk in empty:
        yield chunk


async def _end_of(session: GuestSession, path: str, lines: int, most: int) -> bytes:
    found = await _stat(session, path)
    size = min(found.size, most) if found else 0
    block = min(BLOCK, size)
    while block:
        data = await read_log(session, path, found.size - block, block) if found else b""
        if block == size:
            return whole_lines(data) if found and found.size > size else data
        if _enough(data, lines):
            return whole_lines(data)
        block = min(block * 2, size)
    return b""


async def read_log(session: GuestSession, path: str, offset: int, length: int) -> bytes:
    """Return at most `length` bytes; none if the file does not exist any more."""
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
    """Return whether the data has twice as many line ends as wanted: empty lines are dropped later."""
    return data.count(b"\n") > 2 * lines
