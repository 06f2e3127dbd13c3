"""Directory listings and entries, made of what the guest's file server says."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import replace
from posixpath import join
from typing import cast

import asyncssh

from vmbackend.errors import GuestPathInvalid, GuestPathNotFound

from .session import Entry
from .sftp import FileChannel

_MAX_PATH = 4096  # Linux's PATH_MAX
_LINKS_AT_ONCE = 16
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


def check_path(path: str) -> None:
    """Raises GuestPathInvalid for a path that no kernel takes, or that is not absolute."""
    if not path.startswith("/") or "\0" in path:
        raise GuestPathInvalid("A path inside the machine is absolute and holds no NUL character.")
    if len(path.encode("utf-8", "surrogateescape")) >= _MAX_PATH:
        raise GuestPathInvalid("The path is too long.")


def entry(name: str, path: str, found: asyncssh.SFTPAttrs) -> Entry:
    """Absent attributes (a server that leaves them out) count as zero."""
    mode = found.permissions or 0
    return Entry(
        name=name,
        path=path,
        type=_TYPES.get(stat.S_IFMT(mode), "other"),
        size=found.size or 0,
        mode=stat.S_IMODE(mode),
        modified=float(found.mtime or 0),
    )


async def list_directory(files: FileChannel, path: str, limit: int) -> tuple[list[Entry], bool]:
    """The first `limit` entries in the directory's own order, sorted; the rest is never asked for."""
    client = await files.client()
    entries: list[Entry] = []
    more = False
    names = cast("AsyncIterator[asyncssh.SFTPName]", client.scandir(path))
    async with aclosing(names):  # type: ignore[type-var]
        while True:
            try:
                found = await files.ask(anext(names), path)
            except StopAsyncIteration:
                break
            name = str(found.filename)
            # A hostile server may send names that are none.
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                continue
            if len(entries) == limit:
                more = True
                break
            entries.append(entry(name, join(path, name), found.attrs))
    return await _with_targets(files, sorted(entries, key=lambda found: found.name)), more


async def _with_targets(files: FileChannel, entries: list[Entry]) -> list[Entry]:
    free = asyncio.Semaphore(_LINKS_AT_ONCE)
    client = await files.client()

    async def resolve(found: Entry) -> Entry:
        async with free:
            with suppress(GuestPathInvalid, GuestPathNotFound):  # it went away meanwhile
                target = await files.ask(client.readlink(found.path), found.path)
                return replace(found, target=str(target))
        return found

    links = [found for found in entries if found.type == "symlink"]
    resolved = dict(zip(links, await asyncio.gather(*map(resolve, links)), strict=True))
    return [resolved.get(found, found) for found in entries]
