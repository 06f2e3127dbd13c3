"""Directory listings and entries, from the guest's file server.

The server stats each entry that it lists, which takes minutes in a slow guest for 100,000 entries. So the names of
such a directory come from the kit's `find`, and only those of the requested page are stat'ed.
"""

from __future__ import annotations

import asyncio
import heapq
import stat
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from posixpath import join
from typing import TypeVar

import asyncssh

from vmbackend.errors import GuestPathInvalid, GuestPathNotFound

from .session import Entry
from .sftp import FileChannel
from .sftp_client import decode_attributes

T = TypeVar("T")
R = TypeVar("R")
Names = Callable[[str], Awaitable[bytes]]

_MAX_PATH = 4096  # Linux's PATH_MAX
_MAX_NAME = 255  # and NAME_MAX
# Up to this many entries a single scan of the directory is fastest.
SMALL_DIRECTORY = 1000
# Of paths and targets in a page: either may have 4 KiB, of which a response has several forms.
MAX_PAGE_BYTES = 4 << 20
_AT_ONCE = 16
_TARGETS_AT_ONCE = 256
_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}


def check_path(path: str) -> None:
    """Raises GuestPathInvalid for a path that is not absolute or that the kernel would reject."""
    if not path.startswith("/") or "\0" in path:
        raise GuestPathInvalid("A path inside the machine must be absolute and without NUL characters.")
    if len(path.encode("utf-8", "surrogateescape")) >= _MAX_PATH:
        raise GuestPathInvalid("The path is too long.")


def make_entry(name: str, path: str, found: asyncssh.SFTPAttrs) -> Entry:
    """The entry of these attributes; those that the server omits count as zero."""
    return _entry(name, path, found.permissions or 0, found.size or 0, found.mtime or 0)


def _entry(name: str, path: str, mode: int, size: int, modified: int) -> Entry:
    kind = _TYPES.get(stat.S_IFMT(mode), "other")
    return Entry(name=name, path=path, type=kind, size=size, mode=stat.S_IMODE(mode), modified=float(modified))


async def list_directory(
    files: FileChannel, names: Names, path: str, limit: int, after: str
) -> tuple[list[Entry], bool]:
    """The first `limit` entries by name after `after`, and whether there are more. Memory is limited by the page, which
    has fewer entries if their paths and targets are longer than MAX_PAGE_BYTES together.

    `names` returns the names of a large directory in the format of `find -print0`.
    """
    limit = min(limit, max(1, MAX_PAGE_BYTES // (len(path) + 1)))
    found = await _scan(files, path)
    if found is None:
        listed = await names(path)
        # In a thread: takes about a microsecond per name.
        chosen, more = await asyncio.to_thread(_page, _split(listed), limit, after)
        entries = await _stat_names(files, path, chosen)
    else:
        chosen, more = _page(found, limit, after)
        entries = [_listed_entry(path, name, found[name]) for name in chosen]
    complete = await _with_targets(files, entries)
    return complete, more or len(complete) < len(entries)


def _listed_entry(path: str, name: str, encoded: bytes) -> Entry:
    found = decode_attributes(encoded)
    return _entry(name, join(path, name), found.mode, found.size, found.modified)


async def _scan(files: FileChannel, path: str) -> dict[str, bytes] | None:
    """The encoded attributes of all entries by name, or None if there are more than SMALL_DIRECTORY."""
    found: dict[str, bytes] = {}
    seen = 0
    async with aclosing(files.scan(path)) as batches:
        async for batch in batches:
            seen += len(batch.names)
            if seen > SMALL_DIRECTORY + 2:  # with `.` and `..`
                return None
            for encoded_name, attributes in zip(batch.names, batch.attributes, strict=True):
                name = encoded_name.decode("utf-8", "surrogateescape")
                if _is_name(name):
                    found[name] = attributes
    return found


def _is_name(name: str) -> bool:
    """Whether it is a valid name; a hostile server may send others."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name and len(name) <= _MAX_NAME


def _split(listed: bytes) -> Iterator[str]:
    """The names one by one: a list would take about 100 bytes per name."""
    start = 0
    while (end := listed.find(b"\0", start)) >= 0:
        name = listed[start:end].removeprefix(b"./").decode("utf-8", "surrogateescape")
        if _is_name(name):
            yield name
        start = end + 1


def _page(names: Iterator[str] | dict[str, bytes], limit: int, after: str) -> tuple[list[str], bool]:
    chosen = heapq.nsmallest(limit + 1, (name for name in names if name > after))
    return chosen[:limit], len(chosen) > limit


async def _stat_names(files: FileChannel, path: str, names: Sequence[str]) -> list[Entry]:
    """The entries of those names that still exist."""
    client = await files.client()

    async def look(name: str) -> Entry | None:
        whole = join(path, name)
        with suppress(GuestPathInvalid, GuestPathNotFound):  # removed since
            return make_entry(name, whole, await files.request(client.lstat(whole), whole))
        return None

    return [found for found in await _map_concurrently(names, look) if found is not None]


async def _with_targets(files: FileChannel, entries: Sequence[Entry]) -> list[Entry]:
    """The entries with the targets of links, as many of them as a page may have, but at least one."""
    client, complete, size = await files.client(), list[Entry](), 0
    for start in range(0, len(entries), _TARGETS_AT_ONCE):
        some = entries[start : start + _TARGETS_AT_ONCE]
        for one in await _map_concurrently(some, lambda each: _with_target(files, client, each)):
            size += len(one.path) + len(one.target or "")
            if complete and size > MAX_PAGE_BYTES:
                return complete
            complete.append(one)
    return complete


async def _with_target(files: FileChannel, client: asyncssh.SFTPClient, found: Entry) -> Entry:
    if found.type == "symlink":
        with suppress(GuestPathInvalid, GuestPathNotFound):
            target = await files.request(client.readlink(found.path), found.path)
            return replace(found, target=str(target))
    return found


async def _map_concurrently(items: Sequence[T], work: Callable[[T], Awaitable[R]]) -> list[R]:
    """The results of `work` for each item, a few concurrently; the first failure cancels the others."""
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
