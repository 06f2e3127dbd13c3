"""Directory listings and entries, made of what the guest's file server says.

The server looks at each make_entry it names, which takes minutes of a slow guest for a directory of 100,000. So such a
directory's names are taken from the kit's `find`, and only those of the page that is wanted are looked at.
"""

from __future__ import annotations

import asyncio
import heapq
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from posixpath import join
from typing import TypeVar, cast

import asyncssh

from vmbackend.errors import GuestPathInvalid, GuestPathNotFound

from .session import Entry
from .sftp import FileChannel

T = TypeVar("T")
R = TypeVar("R")
Names = Callable[[str], Awaitable[bytes]]

_MAX_PATH = 4096  # Linux's PATH_MAX
# Up to so many entries one pass over the directory is the quickest.
SMALL_DIRECTORY = 1000
_AT_ONCE = 16
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


def check_path(path: str) -> None:
    """Raises GuestPathInvalid for a path that no kernel takes, or that is not absolute."""
    if not path.startswith("/") or "\0" in path:
        raise GuestPathInvalid("A path inside the machine is absolute and holds no NUL character.")
    if len(path.encode("utf-8", "surrogateescape")) >= _MAX_PATH:
        raise GuestPathInvalid("The path is too long.")


def make_entry(name: str, path: str, found: asyncssh.SFTPAttrs) -> Entry:
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


async def list_directory(
    files: FileChannel, names: Names, path: str, limit: int, after: str
) -> tuple[list[Entry], bool]:
    """The first `limit` entries by name past `after`, and whether there are more. Memory is bounded by the page.

    `names` gives the names of a large directory as `find -print0` prints them.
    """
    found = await _scan(files, path)
    if found is None:
        listed = await names(path)
        # In a thread: some hundred thousand names take as many microseconds.
        chosen, more = await asyncio.to_thread(_page, _split(listed), limit, after)
        entries = await _stat_names(files, path, chosen)
    else:
        chosen, more = _page(found, limit, after)
        entries = [found[name] for name in chosen]
    client = await files.client()
    return await _map_concurrently(entries, lambda one: _with_target(files, client, one)), more


async def _scan(files: FileChannel, path: str) -> dict[str, Entry] | None:
    """Every make_entry, or None where there are more than a few."""
    client = await files.client()
    found: dict[str, Entry] = {}
    seen = 0
    names = cast("AsyncIterator[asyncssh.SFTPName]", client.scandir(path))
    async with aclosing(names):  # type: ignore[type-var]
        while True:
            try:
                one = await files.request(anext(names), path)
            except StopAsyncIteration:
                return found
            seen += 1
            if seen > SMALL_DIRECTORY + 2:  # with `.` and `..`
                return None
            name = str(one.filename)
            if _is_name(name):
                found[name] = make_entry(name, join(path, name), one.attrs)


def _is_name(name: str) -> bool:
    """A hostile server may send names that are none."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _split(listed: bytes) -> Iterator[str]:
    """Names one by one, for a list of them all would take some 100 bytes for each."""
    start = 0
    while (end := listed.find(b"\0", start)) >= 0:
        name = listed[start:end].removeprefix(b"./").decode("utf-8", "surrogateescape")
        if _is_name(name):
            yield name
        start = end + 1


def _page(names: Iterator[str] | dict[str, Entry], limit: int, after: str) -> tuple[list[str], bool]:
    chosen = heapq.nsmallest(limit + 1, (name for name in names if name > after))
    return chosen[:limit], len(chosen) > limit


async def _stat_names(files: FileChannel, path: str, names: Sequence[str]) -> list[Entry]:
    """What is still there of these names."""
    client = await files.client()

    async def look(name: str) -> Entry | None:
        whole = join(path, name)
        with suppress(GuestPathInvalid, GuestPathNotFound):  # it went away meanwhile
            return make_entry(name, whole, await files.request(client.lstat(whole), whole))
        return None

    return [found for found in await _map_concurrently(names, look) if found is not None]


async def _with_target(files: FileChannel, client: asyncssh.SFTPClient, found: Entry) -> Entry:
    if found.type == "symlink":
        with suppress(GuestPathInvalid, GuestPathNotFound):
            target = await files.request(client.readlink(found.path), found.path)
            return replace(found, target=str(target))
    return found


async def _map_concurrently(items: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """What `work` makes of each item, a few at once; the first failure ends them all."""
    turn = iter(enumerate(items))
    results: dict[int, R] = {}

    async def worker() -> None:
        for number, item in turn:
            results[number] = await work(item)

    workers = [asyncio.ensure_future(worker()) for _ in range(min(_AT_ONCE, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [results[number] for number in range(len(items))]
