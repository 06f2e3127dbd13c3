"""Files inside a machine, as coroutines that take its guest's session. They run on the loop of the guest pool.

The guest resolves paths and stores files (`vmbackend/guest`); nothing of what it says is a path of the host.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

from common.errors import PayloadTooLarge
from vmbackend.errors import GuestFileChanged
from vmbackend.guest.session import ANY_CONTENT, Entry, GuestSession, TreeEntry
from vmbackend.guest.sources import closing_source
from workspaces import errors
from workspaces.data_plane.files.edits import Edit, apply_edits
from workspaces.data_plane.files.errors import FileChanged
from workspaces.data_plane.files.lines import LAST, LineCollector
from workspaces.data_plane.search.program import Selection
from workspaces.data_plane.search.services import files_not_ignored
from workspaces.files.paths import displayed_path

LIST_LIMIT = 10_000
LIST_BYTES = 8 << 20  # of the names of one listing
MAX_DEPTH = 64
TEXT_LIMIT = 16 << 20  # bytes of the text of one response, and of a file that is edited
# A larger file is not read to its end only to count its lines.
COUNTED_LIMIT = 64 << 20
BLOCK = 240 * 1024
# Attempts of an edit: each that fails means that another process, or a program, has edited the file. Some processes
# that edit one file at once come one after another by pauses that differ, and grow.
ATTEMPTS = 20
PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries below `path`. `hashes`: SHA-256 by the entries' paths."""

    path: str
    entries: Sequence[TreeEntry]
    hashes: Mapping[str, str]
    truncated: bool


@dataclass(frozen=True, slots=True)
class FilePart:
    """Lines of a file from line `first` on. `lines`: how many the file has, None if it was not read to its end."""

    path: str
    content: bytes
    first: int
    size: int
    lines: int | None


async def files_list(
    session: GuestSession,
    *,
    path: str,
    depth: int,
    ignore: Sequence[str],
    with_hashes: bool = False,
    gitignore: bool = False,
) -> Listing:
    """Return the entries below a directory; with `gitignore` files that git does not ignore, and the directories of
    these.

    Raise GuestPathNotFound, GuestPathInvalid, DeadlineExceeded; with `gitignore` also as `search.services`.
    """
    if gitignore:
        entries, more = await _not_ignored(session, path, Selection(exclude=ignore, gitignore=True, depth=depth))
    else:
        entries, more = await session.walk(path, depth=depth, limit=LIST_LIMIT, ignore=ignore)
    hashes: dict[str, str] = {}
    if with_hashes:
        hashes = await session.hash_files(path, [entry.path for entry in entries if entry.is_regular])
    return Listing(path, entries, hashes, more)


async def _not_ignored(session: GuestSession, path: str, selection: Selection) -> tuple[list[TreeEntry], bool]:
    if (await session.stat(path)).type != "directory":
        raise errors.PathInvalid(f"{displayed_path(path)!r} is not a directory.")
    files, more = await files_not_ignored(session, path=path, selection=selection, limit=LIST_LIMIT)
    names, cut = await asyncio.to_thread(_with_folders, files)
    return await session.describe_files(path, names), more or cut


def _with_folders(files: Sequence[str]) -> tuple[list[str], bool]:
    """Return the files and their folders, each before what is in it, by name, and whether some are left out.

    A few deep files have more folders than fit into memory, so no more names are made than are listed.
    """
    names: list[str] = []
    size, before = 0, ""
    for file in sorted(set(files), key=lambda name: name.replace("/", "\0")):
        for name in new_names(file, before):
            size += len(name)
            if len(names) == LIST_LIMIT or size > LIST_BYTES:
                return names, True
            names.append(name)
        before = file
    return names, False


def new_names(file: str, before: str) -> Iterator[str]:
    """Yield a file, and before it those of its folders in which the file `before` is not."""
    start, shared = 0, True
    while (end := file.find("/", start)) >= 0:
        shared = shared and before[start : end + 1] == file[start : end + 1]
        if not shared:
            yield file[:end]
        start = end + 1
    yield file


async def file_read(session: GuestSession, *, path: str, first: int = 1, last: int = LAST) -> FilePart:
    """Return lines of a file. Raise PathInvalid, PayloadTooLarge, GuestPathNotFound, GuestPathInvalid."""
    entry = await regular_file(session, path)
    whole = (first, last) == (1, LAST)
    if whole and not entry.is_virtual and entry.size > TEXT_LIMIT:
        raise PayloadTooLarge(
            f"The file has {entry.size} bytes, and a text at most {TEXT_LIMIT}: request some of its lines, or download "
            "its bytes."
        )
    found = LineCollector(first, last, TEXT_LIMIT)
    counts = entry.size <= COUNTED_LIMIT
    complete = True
    async with closing_source(session.read(path)) as chunks:
        async for chunk in chunks:
            found.feed(chunk)
            if found.is_complete and not counts:
                complete = False
                break
    size = found.size if complete else entry.size
    return FilePart(path, bytes(found.content), first, size, found.lines if complete else None)


async def regular_file(session: GuestSession, path: str) -> Entry:
    """Return the entry of a file that can be read. Raise PathInvalid, GuestPathNotFound."""
    entry = await session.stat(path)
    if entry.type != "file":
        what = "a directory" if entry.type == "directory" else "a device, a pipe or a socket"
        raise errors.PathInvalid(f"{displayed_path(path)!r} is {what}, not a file.")
    return entry


async def file_create(session: GuestSession, *, path: str, content: str) -> int:
    """Create a file; return its bytes. Raise GuestPathExists, GuestPathInvalid, GuestDiskFull."""
    return await session.write(path, content_blocks(content.encode()), replace=False)


async def folder_create(session: GuestSession, *, path: str) -> None:
    """Create a directory. Raise GuestPathExists, GuestPathInvalid, GuestDiskFull."""
    await session.make_directory(path)


async def file_replace(session: GuestSession, *, path: str, content: str) -> int:
    """Replace the content of an existing file; return its bytes. Raise what `file_edit` raises."""
    async with _edited(session, path):
        await regular_file(session, path)
        return await session.write(path, content_blocks(content.encode()), expected=ANY_CONTENT)


async def file_edit(session: GuestSession, *, path: str, edits: Sequence[Edit]) -> int:
    """Apply all edits, or none; return the file's bytes. If another process or a program of the machine has changed
    the file since it was read, they are applied to what it has now.

    Raise EditNotApplicable, FileChanged, PayloadTooLarge, PathInvalid, GuestPathNotFound, GuestPathInvalid,
    GuestDiskFull; the file is unchanged then.
    """
    async with _edited(session, path):
        for attempt in range(ATTEMPTS):
            await asyncio.sleep(random.uniform(0, PAUSE_SECONDS * attempt))  # noqa: S311  # no secret
            with suppress(GuestFileChanged):
                return await _edit_once(session, path, edits)
        raise FileChanged


async def _edit_once(session: GuestSession, path: str, edits: Sequence[Edit]) -> int:
    """Raise GuestFileChanged beside the errors of `file_edit`."""
    content = await _content(session, path)
    try:
        changed = await asyncio.to_thread(apply_edits, content, edits, TEXT_LIMIT)
    except ValueError as exc:
        raise PayloadTooLarge(str(exc)) from exc
    return await session.write(path, content_blocks(changed), expected=hashlib.sha256(content).hexdigest())


async def path_remove(session: GuestSession, *, path: str) -> None:
    """Remove a file, a link, or a directory with its content. Raise what GuestSession.remove raises."""
    await session.remove(path)


async def path_rename(session: GuestSession, *, source: str, destination: str) -> None:
    """Rename a path, as GuestSession.rename does."""
    await session.rename(source, destination)


async def _content(session: GuestSession, path: str) -> bytes:
    entry = await regular_file(session, path)
    if entry.size > TEXT_LIMIT:
        raise PayloadTooLarge(f"The file has {entry.size} bytes, and at most {TEXT_LIMIT} can be edited.")
    content = bytearray()
    async with closing_source(session.read(path)) as chunks:
        async for chunk in chunks:
            content += chunk
            if len(content) > TEXT_LIMIT:  # it grew
                raise PayloadTooLarge(f"The file has more than {TEXT_LIMIT} bytes.")
    return bytes(content)


async def content_blocks(content: bytes) -> AsyncIterator[bytes]:
    """Yield a file's content in the pieces that it is written in."""
    for start in range(0, len(content), BLOCK):
        yield content[start : start + BLOCK]


@asynccontextmanager
async def _edited(session: GuestSession, path: str) -> AsyncIterator[None]:
    """Allow one edit of a file at a time in this process. Each edit by another process makes one attempt fail."""
    lock = _locks.setdefault((id(session), path), asyncio.Lock())
    async with lock:
        yield


_locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
