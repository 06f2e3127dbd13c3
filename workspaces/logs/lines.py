"""From the bytes of a log to entries. A guest may write anything; nothing breaks a response or a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from vmbackend.bootlog import split_timestamp

# A longer line becomes several entries.
MAX_LINE = 8192
# The most that is read for one response, however many lines were requested.
MAX_TAIL_BYTES = 1 << 20


class Line(NamedTuple):
    """The text of one entry; `time` is its timestamp in a console's log."""

    text: bytes
    time: str | None = None


def split_lines(data: bytes, *, console: bool = False, inside: bool = False) -> list[Line]:
    """Lines without their ends, in pieces of at most MAX_LINE bytes that have the time of their line; none is empty.

    A console's lines begin with their times, except for the first if the data begins `inside` a line: the guest wrote
    all of that, whatever it looks like.
    """
    found: list[Line] = []
    for line in data.split(b"\n"):
        time, text = split_timestamp(line) if console and not inside else (None, line)
        found += [Line(piece, time) for piece in _pieces(text.rstrip(b"\r"))]
        inside = False
    return found


def _pieces(text: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(text):
        piece = text[start : start + MAX_LINE]
        if start + MAX_LINE < len(text):
            piece = piece[: whole_characters(piece)]
        yield piece
        start += len(piece)


def whole_characters(data: bytes) -> int:
    """The length of the block up to its last complete UTF-8 character; all of it if its end is not UTF-8."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if back < length else len(data)
        if byte < 0x80:
            break
    return len(data)


def whole_lines(data: bytes) -> bytes:
    """What follows the first end of a line: a block that was cut at any byte begins with a part of a line."""
    return data.split(b"\n", 1)[-1]


def log_entries(data: bytes, source: str, *, console: bool, last: int) -> list[dict[str, Any]]:
    """The last entries of a block of a log. A console's lines have their times, a program's have none."""
    lines = split_lines(data, console=console)[-last:] if last else []
    return [log_entry(line, source, console=console) for line in lines]


def log_entry(line: Line, source: str, *, console: bool, now: str | None = None) -> dict[str, Any]:
    """Bytes that are not UTF-8 are replaced. A program's two streams share a log, so all of it is `stdout`.

    `now`: the timestamp of a line without its own.
    """
    text, stream = line.text.decode("utf-8", errors="replace"), "console" if console else "stdout"
    return {"line": text, "message": text, "timestamp": line.time or now, "stream": stream, "source": source}
