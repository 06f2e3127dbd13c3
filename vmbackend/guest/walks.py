"""Trees of files in the guest: the records of the kit's `guest walk`, and hashes by its busybox."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from posixpath import join
from typing import TypeVar

from vmbackend.errors import GuestCommandInvalid, GuestPathInvalid, GuestUnreachable

from .command_results import KitCommand, require_end
from .kernel_files import PlatformCommand
from .listing import make_entry
from .session import Entry, TreeEntry

MAX_RECORDS = 8 << 20  # bytes of paths and targets in one walk
MAX_NAME = 4096
VIOLATION = "The machine's listing violates the protocol."
HASH_SIZE = 64
_RECORD = re.compile(rb"([df])([l-])([rs]) (\d{1,19}) (-?\d{1,15}) ", re.ASCII)
# Bytes of a page's paths and targets: either may have 4 KiB, of which a response has several forms.
MAX_PAGE_BYTES = 4 << 20
MAX_LISTED = 255  # bytes of a name: Linux's NAME_MAX
_LISTED = re.compile(rb"([0-7]{1,6}) (\d{1,19}) (-?\d{1,15}) ", re.ASCII)
MORE = b"+"
T = TypeVar("T")


async def walk_tree(
    run: KitCommand, path: str, *, depth: int, limit: int, ignore: Sequence[str]
) -> tuple[list[TreeEntry], bool]:
    """See GuestSession.walk."""
    done = require_end(await run("helper", ["walk", str(depth), str(limit), *ignore], path, b"", MAX_RECORDS))
    if done.exit_code != 0:
        raise GuestPathInvalid(f"{path!r} cannot be listed.")
    return await asyncio.to_thread(read_records, done.stdout, limit, done.truncated)


async def list_directory(
    run: PlatformCommand,
    look: Callable[[str], Awaitable[Entry]],
    helper: str,
    path: str,
    *,
    limit: int,
    after: str,
) -> tuple[list[Entry], bool]:
    """See GuestSession.list_directory. `look` is its `stat`."""
    limit = min(limit, max(1, MAX_PAGE_BYTES // (len(path) + 1)))
    try:
        done = require_end(await run([helper, "list", str(limit), after], MAX_RECORDS, working_dir=path))
    except GuestCommandInvalid as error:
        is_folder = (await look(path)).type == "directory"
        raise GuestPathInvalid(f"{path!r} {'cannot be listed' if is_folder else 'is not a directory'}.") from error
    if done.exit_code != 0:
        raise GuestPathInvalid(f"{path!r} cannot be listed.")
    return await asyncio.to_thread(read_listing, done.stdout, path, limit, done.truncated)


def read_listing(data: bytes, path: str, limit: int, cut: bool) -> tuple[list[Entry], bool]:
    """Return the entries of a directory as far as a page may have them, and whether there are more. As
    `read_records`.
    """
    page, size = list[Entry](), 0
    entries, more = _read(data, _LISTED, limit, cut, lambda *found: _listed_entry(path, *found))
    for entry in entries:
        size += len(entry.path) + len(entry.target or "")
        if page and size > MAX_PAGE_BYTES:
            return page, True
        page.append(entry)
    return page, more


def _listed_entry(folder: str, match: re.Match[bytes], name: bytes, target: bytes) -> Entry:
    """Raise GuestUnreachable for a name that no directory has: a hostile machine may send any."""
    if name in (b"", b".", b"..") or b"/" in name or len(name) > MAX_LISTED:
        raise GuestUnreachable(VIOLATION)
    mode, size, modified = (int(field, base) for field, base in zip(match.groups(), (8, 10, 10), strict=True))
    shown, leads_to = (each[:MAX_NAME].decode("utf-8", "surrogateescape") for each in (name, target))
    return make_entry(shown, join(folder, shown), mode, size, modified, target=leads_to)


async def describe_files(run: KitCommand, path: str, names: Sequence[str]) -> list[TreeEntry]:
    """See GuestSession.describe_files."""
    given = b"".join(name.encode("utf-8", "surrogateescape") + b"\0" for name in names)
    done = require_end(await run("helper", ["walk", "-", str(len(names))], path, given, MAX_RECORDS))
    return (await asyncio.to_thread(read_records, done.stdout, len(names), True))[0]


def read_records(data: bytes, limit: int, cut: bool) -> tuple[list[TreeEntry], bool]:
    """Return the entries, and whether there are more. `cut`: the end is missing, and with it a part of the last record.

    Raise GuestUnreachable for anything else that is no record.
    """
    return _read(data, _RECORD, limit, cut, _entry)


def _read(
    data: bytes,
    form: re.Pattern[bytes],
    limit: int,
    cut: bool,
    make: Callable[[re.Match[bytes], bytes, bytes], T],
) -> tuple[list[T], bool]:
    entries: list[T] = []
    fields = _fields(data)
    for head in fields:
        if head == MORE:
            return entries, True
        target = next(fields, None)
        match = form.match(head)
        if target is None and cut:
            break
        if match is None or target is None or len(entries) >= limit:
            raise GuestUnreachable(VIOLATION)
        entries.append(make(match, head[match.end() :], target))
    return entries, cut


def _fields(data: bytes) -> Iterator[bytes]:
    """Yield the NUL-terminated fields one by one: a list would take twice the memory."""
    start = 0
    while (end := data.find(b"\0", start)) >= 0:
        yield data[start:end]
        start = end + 1


def _entry(match: re.Match[bytes], path: bytes, target: bytes) -> TreeEntry:
    kind, link, regular, size, modified = match.groups()
    return TreeEntry(
        path=path[:MAX_NAME].decode("utf-8", "surrogateescape"),
        type="directory" if kind == b"d" else "file",
        size=int(size),
        modified=float(modified),
        is_regular=regular == b"r",
        target=target[:MAX_NAME].decode("utf-8", "surrogateescape") if link == b"l" else None,
    )


async def hash_files(run: KitCommand, busybox: str, path: str, names: Sequence[str]) -> dict[str, str]:
    """See GuestSession.hash_files. `busybox`: its path in the guest."""
    encoded = [name.encode("utf-8", "surrogateescape") for name in names]
    if not encoded:
        return {}
    arguments = ["xargs", "-0", "-n", "100", busybox, "sha256sum", "--"]
    limit = sum(map(len, encoded)) + len(encoded) * (HASH_SIZE + 8)
    done = await run("busybox", arguments, path, b"".join(b"./%b\0" % name for name in encoded), limit)
    return dict(_hashes(done.stdout, encoded))


def _hashes(output: bytes, names: Sequence[bytes]) -> Iterator[tuple[str, str]]:
    """Yield each name with its printed hash, in the order of names; a file that could not be read has no line."""
    position = 0
    for name in names:
        line = output[position : position + HASH_SIZE + len(name) + 5]
        found, rest = line[:HASH_SIZE], line[HASH_SIZE:]
        if rest == b"  ./%b\n" % name and re.fullmatch(rb"[0-9a-f]{64}", found):
            position += len(line)
            yield name.decode("utf-8", "surrogateescape"), found.decode()
