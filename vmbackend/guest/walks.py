"""Trees of files in the guest: the records of the kit's `guest walk`, and hashes by its busybox."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence

from vmbackend.errors import GuestPathInvalid, GuestUnreachable

from .changes import KitCommand, require_end
from .session import TreeEntry

MAX_RECORDS = 8 << 20  # bytes of paths and targets in one walk
MAX_NAME = 4096
HASH_SIZE = 64
_RECORD = re.compile(rb"([df])([l-])([rs]) (\d{1,19}) (-?\d{1,15}) ", re.ASCII)
MORE = b"+"


async def walk_tree(
    run: KitCommand, path: str, *, depth: int, limit: int, ignore: Sequence[str]
) -> tuple[list[TreeEntry], bool]:
    """See GuestSession.walk."""
    done = require_end(await run("helper", ["walk", str(depth), str(limit), *ignore], path, b"", MAX_RECORDS))
    if done.exit_code != 0:
        raise GuestPathInvalid(f"{path!r} cannot be listed.")
    return await asyncio.to_thread(read_records, done.stdout, limit, done.truncated)


async def describe_files(run: KitCommand, path: str, names: Sequence[str]) -> list[TreeEntry]:
    """See GuestSession.describe_files."""
    given = b"".join(name.encode("utf-8", "surrogateescape") + b"\0" for name in names)
    done = require_end(await run("helper", ["walk", "-", str(len(names))], path, given, MAX_RECORDS))
    return (await asyncio.to_thread(read_records, done.stdout, len(names), True))[0]


def read_records(data: bytes, limit: int, cut: bool) -> tuple[list[TreeEntry], bool]:
    """The entries, and whether there are more. `cut`: the end is missing, and with it a part of the last record.

    Raises GuestUnreachable for anything else that is no record.
    """
    entries: list[TreeEntry] = []
    fields = _fields(data)
    for head in fields:
        if head == MORE:
            return entries, True
        target = next(fields, None)
        match = _RECORD.match(head)
        if target is None and cut:
            break
        if match is None or target is None or len(entries) >= limit:
            raise GuestUnreachable("The machine's listing violates the protocol.")
        entries.append(_entry(match, head[match.end() :], target))
    return entries, cut


def _fields(data: bytes) -> Iterator[bytes]:
    """The NUL-terminated fields one by one: a list would take twice the memory."""
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
    """What was printed of each name, in their order; a file that could not be read has no line."""
    position = 0
    for name in names:
        line = output[position : position + HASH_SIZE + len(name) + 5]
        found, rest = line[:HASH_SIZE], line[HASH_SIZE:]
        if rest == b"  ./%b\n" % name and re.fullmatch(rb"[0-9a-f]{64}", found):
            position += len(line)
            yield name.decode("utf-8", "surrogateescape"), found.decode()
