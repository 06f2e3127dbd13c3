"""Records of the kit's `guest walk` as they come: trees of any size in constant memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from vmbackend.errors import DeadlineExceeded, GuestPathInvalid, GuestUnreachable

from .output import CommandExit, StreamedOutput
from .session import TreeEntry
from .walks import VIOLATION, read_records

NO_LIMIT = 1 << 62  # of entries
# Bytes of one record: its path and its target, 4 KiB each, and numbers.
MAX_RECORD = 16 * 1024


async def read_walk(parts: StreamedOutput, path: str) -> AsyncIterator[list[TreeEntry]]:
    """Yield the entries of each part of the output. Raise GuestUnreachable for anything that is no record,
    GuestPathInvalid if the walk failed, DeadlineExceeded.
    """
    rest = b""
    async for part in parts:
        if isinstance(part, CommandExit):
            _require_end(part, path, rest)
        elif part.stream == "stdout" and part.data:
            records, rest = split_records(rest + part.data)
            if records:
                yield read_records(records, NO_LIMIT, False)[0]


def split_records(data: bytes) -> tuple[bytes, bytes]:
    """Return the whole records, and what belongs to the next one. Raise GuestUnreachable if it is too long for one."""
    last = data.rfind(b"\0")
    if data.count(b"\0") % 2:  # the last record's path is whole, and its target is not
        last = data.rfind(b"\0", 0, last)
    end = last + 1
    if len(data) - end > MAX_RECORD:
        raise GuestUnreachable(VIOLATION)
    return data[:end], data[end:]


def _require_end(exit_: CommandExit, path: str, rest: bytes) -> None:
    if exit_.timed_out:
        raise DeadlineExceeded("The machine did not finish in time.")
    if exit_.exit_code != 0:
        raise GuestPathInvalid(f"{path!r} cannot be listed.")
    if rest:
        raise GuestUnreachable(VIOLATION)
