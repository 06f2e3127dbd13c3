"""Translation of a log's bytes to entries. A guest may write anything; nothing breaks a response or a stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from vmbackend.bootlog import split_timestamp

# A longer line becomes several entries.
MAX_LINE = 8192
# The most that is read for one response, however many lines were requested.
MAX_TAIL_BYTES = 1 << 20
# A record of the guest's logger (vmbackend/guest/src/logger.c), in the format of CRI; P: the line goes on in the next
# record of its stream.
_RECORD = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\d{6}Z (stdout|stderr) ([PF]) ")


class LogFormat(Enum):
    """Format of a log: how its lines begin."""

    PLAIN = "plain"  # the output of a program as it is
    CONSOLE = "console"  # with the time at which the host read the line
    RECORDS = "records"  # with time, stream and tag, written by the guest's logger


class Line(NamedTuple):
    """Text of one entry, its time if the log has one, and its stream."""

    text: bytes
    time: str | None = None
    stream: str = "stdout"


def split_lines(data: bytes, log_format: LogFormat, *, inside: bool = False) -> list[Line]:
    """Split data into lines without their ends, in pieces of at most MAX_LINE bytes that have the time of their line;
    none is empty.

    If the data begins `inside` a line, the first one is text only: a program wrote all of it, whatever it looks like.
    """
    first, *rest = data.split(b"\n")
    stream = "console" if log_format is LogFormat.CONSOLE else "stdout"
    lines = [Line(first, None, stream)] if inside else []
    lines += _PARSERS[log_format](rest if inside else [first, *rest])
    return [line._replace(text=piece) for line in lines for piece in _pieces(line.text.rstrip(b"\r"))]


def _plain_lines(lines: Iterable[bytes]) -> list[Line]:
    return [Line(line) for line in lines]


def _console_lines(lines: Iterable[bytes]) -> list[Line]:
    split = (split_timestamp(line) for line in lines)
    return [Line(text, time, "console") for time, text in split]


def _record_lines(lines: Iterable[bytes]) -> list[Line]:
    """Return the lines of records. A part and the records that continue it are one line, with the time of the first."""
    found: list[tuple[list[bytes], str | None, str]] = []
    unfinished: dict[str, list[bytes]] = {}
    for line in lines:
        if not line:
            continue  # such a line has no text, and a guest can write a great many of them
        time, stream, tag, text = _parse_record(line)
        if stream in unfinished and time is not None:
            unfinished[stream].append(text)
        else:
            found.append(([text], time, stream))
            unfinished[stream] = found[-1][0]
        if tag != b"P":
            del unfinished[stream]
    return [Line(b"".join(texts), time, stream) for texts, time, stream in found]


def _parse_record(line: bytes) -> tuple[str | None, str, bytes, bytes]:
    """Return time, stream, tag and text. A line that is not a record (an older kit wrote it, or the guest's root) is
    text.
    """
    match = _RECORD.match(line)
    if match is None:
        return None, "stdout", b"F", line
    time = match[1].decode() + "Z"
    try:
        datetime.fromisoformat(time)
    except ValueError:
        return None, "stdout", b"F", line
    return time, match[2].decode(), match[3], line[match.end() :]


_PARSERS = {
    LogFormat.PLAIN: _plain_lines,
    LogFormat.CONSOLE: _console_lines,
    LogFormat.RECORDS: _record_lines,
}


def _pieces(text: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(text):
        piece = text[start : start + MAX_LINE]
        if start + MAX_LINE < len(text):
            piece = piece[: whole_characters(piece)]
        yield piece
        start += len(piece)


def whole_characters(data: bytes) -> int:
    """Return the length of the block up to its last complete UTF-8 character; all of it if its end is not UTF-8."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if back < length else len(data)
        if byte < 0x80:
            break
    return len(data)


def whole_lines(data: bytes) -> bytes:
    """Return the data after the first end of a line: a block that was cut anywhere begins with a part of a line."""
    return data.split(b"\n", 1)[-1]


def log_entries(data: bytes, source: str, log_format: LogFormat, *, last: int) -> list[dict[str, Any]]:
    """Return the last entries of a block of a log."""
    lines = split_lines(data, log_format)[-last:] if last else []
    return [log_entry(line, source) for line in lines]


def log_entry(line: Line, source: str, *, now: str | None = None) -> dict[str, Any]:
    """Return an entry; bytes that are not UTF-8 are replaced. `now`: the timestamp of a line without its own."""
    text = line.text.decode("utf-8", errors="replace")
    return {"line": text, "message": text, "timestamp": line.time or now, "stream": line.stream, "source": source}
