"""Unpacking a body in a machine: inflated and sifted here, written there by the kit's tar, in constant memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

from common.async_threads import in_body_thread
from common.errors import DomainError
from vmbackend.errors import BackendError
from vmbackend.guest.output import CommandExit, OutputPart
from vmbackend.guest.session import GuestSession
from vmbackend.guest.sources import closing_source
from workspaces.errors import GuestDiskFull
from workspaces.runtime.transfer.errors import ArchiveInvalid
from workspaces.runtime.transfer.inflating import Inflater
from workspaces.runtime.transfer.sifting import Sifter

UNPACK_SECONDS = 6 * 3600.0  # its sender may be slow
SAID_BYTES = 4096
_FULL = b"No space left"


async def archive_unpack(session: GuestSession, chunks: AsyncIterator[bytes], *, dest: str, sifter: Sifter) -> None:
    """Unpack the chunks of a sifted archive into a folder. The first entry that fails ends it; a file that has not come
    whole is removed.

    Raise ArchiveInvalid, GuestDiskFull, and what the chunks raise; `files_extracted` of the details of the first two is
    the number of files that are there.
    """
    failures: list[Exception] = []
    words = [session.busybox, "tar", "-x", "-v", "-o", "-f", "-"]
    parts = _until_failure(chunks, failures)
    output = session.execute_streamed(words, working_dir=dest, timeout=UNPACK_SECONDS, stdin_parts=parts)
    names, said = _NameCounter(), b""
    try:
        async with closing_source(output) as seen:
            async for part in seen:
                if isinstance(part, CommandExit):
                    _require_success(part, failures, min(names.count, sifter.whole_files), said)
                elif part.stream == "stdout":
                    names.feed(part)
                else:
                    said = (said + part.data)[:SAID_BYTES]
    except Exception:
        # If the program has come so far, it has written what it got of the file that has not come whole.
        if failures and names.count >= sifter.files:
            await _remove_half_file(session, dest, sifter)
        raise
    await session.sync()


async def _remove_half_file(session: GuestSession, dest: str, sifter: Sifter) -> None:
    if not sifter.unfinished:
        return
    path = f"{dest.rstrip('/')}/{sifter.unfinished}"
    with suppress(BackendError):  # the failure that has led here is told
        if (await session.stat_link(path)).type == "file":
            await session.remove(path)


async def sifted(body: AsyncIterator[bytes], sifter: Sifter) -> AsyncIterator[bytes]:
    """Yield what is to be unpacked of a body. Raise ArchiveInvalid, GuestDiskFull."""
    inflater = Inflater()
    async for chunk in body:
        pieces = inflater.pieces(chunk)
        while (piece := await in_body_thread(_next, pieces, sifter)) is not None:
            if piece:
                yield piece
    inflater.finish()
    yield sifter.finish()


def _next(pieces: Iterator[bytes], sifter: Sifter) -> bytes | None:
    piece = next(pieces, None)
    return None if piece is None else sifter.feed(piece)


async def _until_failure(chunks: AsyncIterator[bytes], failures: list[Exception]) -> AsyncIterator[bytes]:
    """Yield the chunks. A failure ends them and is kept: the program that reads them waits for their end."""
    try:
        async for chunk in chunks:
            yield chunk
    except Exception as exc:  # of the sender, whatever it is; it is raised afterwards
        failures.append(exc)


def _require_success(end: CommandExit, failures: list[Exception], files: int, said: bytes) -> None:
    if failures:
        failure = failures[0]
        if isinstance(failure, ArchiveInvalid | GuestDiskFull):
            failure.details = {"files_extracted": files}
        raise failure
    if end.exit_code == 0:
        return
    # The name of the entry that fails was said, too.
    error: type[DomainError] = GuestDiskFull if _FULL in said else ArchiveInvalid
    raise error(f"An entry was not unpacked: {_sentence(said)}", details={"files_extracted": max(0, files - 1)})


def _sentence(said: bytes) -> str:
    line = said.split(b"\n", 1)[0].decode("utf-8", "replace")[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in line) or "no reason was given"


class _NameCounter:
    """A counter of the names that the program says, one a line; those of folders end with a slash."""

    def __init__(self) -> None:
        self.count = 0
        self._last = b""

    def feed(self, part: OutputPart) -> None:
        data = self._last + part.data
        self.count += data.count(b"\n") - data.count(b"/\n")
        self._last = data[-1:].replace(b"\n", b"")
