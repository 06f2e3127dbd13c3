"""Archives of several paths, which the guest makes while they are read: the kit's tar, packed by its gzip.

What an archive has is found by the kit's walk, so that patterns leave out what they leave out elsewhere. The names go
to the packing program as they are found.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from vmbackend.errors import DeadlineExceeded, GuestPathInvalid

from .output import CommandExit
from .session import Entry, GuestSession
from .sources import closing_source

ARCHIVE_SECONDS = 6 * 3600.0  # its reader may be slow
MAX_DEPTH = 4096  # of folders; longer paths have no name
# $0: busybox. The end of each archive but the last, two blocks, is taken off, and they become one.
_SCRIPT = """set -o pipefail
{
    "$0" xargs -0 -n 100 "$0" sh -c 'set -o pipefail
        "$0" tar -cf - --no-recursion -- "$@" | "$0" head -c -1024' "$0" && "$0" head -c 1024 /dev/zero
} | "$0" gzip -c"""


async def archive_paths(
    session: GuestSession, paths: Sequence[str], ignore: Sequence[str] = ()
) -> AsyncGenerator[bytes, None]:
    """Yield a tar.gz of files, links and directories with what is below them; names in it are relative to `/`.

    Symbolic links are not followed, other file systems not entered. Raise GuestPathNotFound before the first bytes;
    GuestPathInvalid, or what the guest's walk raises, if it is not whole: the bytes are of no use then.
    """
    entries = [await session.stat_link(path) for path in paths]
    failures: list[Exception] = []
    command = [session.busybox, "sh", "-c", _SCRIPT, session.busybox]
    names = _names(session, entries, ignore, failures)
    output = session.execute_streamed(command, working_dir="/", timeout=ARCHIVE_SECONDS, stdin_parts=names)
    async with closing_source(output) as parts:
        async for part in parts:
            if isinstance(part, CommandExit):
                _require_whole(part, failures)
            elif part.stream == "stdout" and part.data:
                yield part.data


async def _names(
    session: GuestSession, entries: Sequence[Entry], ignore: Sequence[str], failures: list[Exception]
) -> AsyncIterator[bytes]:
    """Yield NUL-terminated names. A failure ends them and is kept: the program that reads them waits for their end."""
    try:
        for entry in entries:
            name = entry.path.strip("/") or "."
            yield _ended(name)
            if entry.type == "directory":
                async for part in _below(session, entry.path, "" if name == "." else f"{name}/", ignore):
                    yield part
    except Exception as error:  # whatever it is, it is raised at the program's end
        failures.append(error)


async def _below(session: GuestSession, path: str, before: str, ignore: Sequence[str]) -> AsyncIterator[bytes]:
    async with closing_source(session.walk_streamed(path, depth=MAX_DEPTH, ignore=ignore)) as batches:
        async for batch in batches:
            yield b"".join(_ended(before + entry.path) for entry in batch)


def _ended(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape") + b"\0"


def _require_whole(end: CommandExit, failures: Sequence[Exception]) -> None:
    if failures:
        raise failures[0]
    if end.timed_out:
        raise DeadlineExceeded("The archive was not read in time.")
    if end.exit_code != 0:
        raise GuestPathInvalid("The archive is not whole: a file changed or could not be read.")
