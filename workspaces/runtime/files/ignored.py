"""Trees of files without those that git ignores, in constant memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence

from vmbackend.guest.session import GuestSession, TreeEntry
from vmbackend.guest.sources import closing_source
from workspaces import errors
from workspaces.data_plane.files.services import new_names
from workspaces.data_plane.search.program import Selection
from workspaces.data_plane.search.services import files_streamed
from workspaces.files.paths import displayed_path

# Names that the guest is asked about at once: of a deep file all folders are among them.
MOST_NAMES = 500
MOST_BYTES = 256 * 1024


async def walk_not_ignored(
    session: GuestSession, path: str, selection: Selection
) -> AsyncGenerator[list[TreeEntry], None]:
    """Yield the files of a directory that git does not ignore, and the folders that they are in.

    Raise PathInvalid (not a directory), GuestPathNotFound, and what `files_streamed` raises.
    """
    if (await session.stat(path)).type != "directory":
        raise errors.PathInvalid(f"{displayed_path(path)!r} is not a directory.")
    before = ""
    async with closing_source(files_streamed(session, path=path, selection=selection)) as found:
        async for files in found:
            for names in _parts(_with_folders(files, before)):
                if entries := await session.describe_files(path, names):
                    yield entries
            before = files[-1]


def _with_folders(files: Sequence[str], before: str) -> Iterator[str]:
    for file in files:
        yield from new_names(file, before)
        before = file


def _parts(names: Iterator[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for name in names:
        part.append(name)
        size += len(name)
        if len(part) == MOST_NAMES or size > MOST_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
