"""Trees of files: chosen as a request says, in batches of any number, in constant memory.

Coroutines that take a guest's session. They run on the loop of the guest pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from vmbackend.errors import BackendError
from vmbackend.guest.session import GuestSession, TreeEntry
from vmbackend.guest.sources import closing_source
from workspaces.data_plane.search.program import Selection
from workspaces.runtime.files.chosen import Chooser
from workspaces.runtime.files.ignored import walk_not_ignored

LIST_LIMIT = 10_000
LIST_BYTES = 8 << 20  # of the paths and targets of one listing
READERS = 4  # contents of files that are read at once
CONTENT_SECONDS = 30.0  # for all contents of one listing


@dataclass(slots=True)
class Wanted:
    """The wanted part of a tree; paths of `entries` are relative to `path`."""

    path: str
    depth: int
    chooser: Chooser
    ignore: Sequence[str] = ()
    gitignore: bool = False
    with_hashes: bool = False
    budget: int = 0  # bytes of contents that are left


@dataclass(slots=True)
class Batch:
    """Some entries of a tree, with hashes and contents by their paths."""

    entries: Sequence[TreeEntry]
    hashes: dict[str, str] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)


async def tree_batches(session: GuestSession, wanted: Wanted) -> AsyncGenerator[Batch, None]:
    """Yield a tree's entries, each before those below it, by name.

    Raise GuestPathNotFound, GuestPathInvalid, DeadlineExceeded, GuestUnreachable, and with `gitignore` what a search
    raises.
    """
    until = asyncio.get_running_loop().time() + CONTENT_SECONDS
    async with aclosing(_walk(session, wanted)) as walk:
        async for found in walk:
            if entries := wanted.chooser.choose(found):
                yield await _described(session, wanted, entries, until)


async def tree_list(session: GuestSession, wanted: Wanted) -> tuple[Batch, bool]:
    """Return the entries as far as one listing has them, and whether there are more. Raise as `tree_batches`."""
    entries, more = await _limited(session, wanted)
    until = asyncio.get_running_loop().time() + CONTENT_SECONDS
    return await _described(session, wanted, entries, until), more


async def _limited(session: GuestSession, wanted: Wanted) -> tuple[list[TreeEntry], bool]:
    entries, size = list[TreeEntry](), 0
    async with aclosing(_walk(session, wanted)) as walk:
        async for found in walk:
            for entry in wanted.chooser.choose(found):
                size += len(entry.path) + len(entry.target or "")
                if len(entries) == LIST_LIMIT or size > LIST_BYTES:
                    return entries, True
                entries.append(entry)
    return entries, False


async def _walk(session: GuestSession, wanted: Wanted) -> AsyncGenerator[list[TreeEntry], None]:
    if wanted.gitignore:
        source: AsyncIterator[list[TreeEntry]] = walk_not_ignored(
            session, wanted.path, Selection(exclude=wanted.ignore, gitignore=True, depth=wanted.depth)
        )
    else:
        source = session.walk_streamed(wanted.path, depth=wanted.depth, ignore=wanted.ignore)
    async with closing_source(source) as batches:
        async for batch in batches:
            yield batch


async def _described(session: GuestSession, wanted: Wanted, entries: Sequence[TreeEntry], until: float) -> Batch:
    batch = Batch(entries)
    regular = [entry for entry in entries if entry.is_regular]
    if wanted.with_hashes and regular:
        batch.hashes = await session.hash_files(wanted.path, [entry.path for entry in regular])
    if wanted.budget > 0:
        batch.contents = await _contents(session, wanted, [entry for entry in regular if entry.target is None], until)
    return batch


async def _contents(session: GuestSession, wanted: Wanted, files: Sequence[TreeEntry], until: float) -> dict[str, str]:
    """Return the texts of files, in their order, as far as the budget and the time last; each is whole."""
    chosen: list[TreeEntry] = []
    for entry in files:
        if entry.size <= wanted.budget:
            wanted.budget -= entry.size
            chosen.append(entry)
    found: dict[str, str] = {}
    places = asyncio.Semaphore(READERS)

    async def read(entry: TreeEntry) -> None:
        async with places:
            text = await _text(session, f"{wanted.path.rstrip('/')}/{entry.path}", entry.size)
        if text is not None:
            found[entry.path] = text

    try:
        async with asyncio.timeout_at(until), asyncio.TaskGroup() as group:
            for entry in chosen:
                group.create_task(read(entry))
    except TimeoutError:
        pass  # those that are left have no content
    return found


async def _text(session: GuestSession, path: str, size: int) -> str | None:
    """Return a file's text; None if it is none, is gone, or has more bytes by now."""
    content = bytearray()
    try:
        async with closing_source(session.read(path, length=size + 1)) as chunks:
            async for chunk in chunks:
                content += chunk
        text = content.decode()
    except (BackendError, UnicodeDecodeError):
        return None
    return None if len(content) > size or "\0" in text else text
