"""From the bytes of a log to entries. A guest may write anything; none of it breaks an answer or a stream."""

from __future__ import annotations

from typing import Any

from vmbackend.bootlog import take_stamp

# A longer line comes as several entries.
MAX_LINE = 8192
# What one answer is made from at most, however many lines were asked for.
MAX_TAIL_BYTES = 1 << 20


def split_lines(data: bytes) -> list[bytes]:
    """Lines of at most MAX_LINE bytes, without their ends; empty ones are left out."""
    found = (line.rstrip(b"\r") for line in data.split(b"\n"))
    return [line[start : start + MAX_LINE] for line in found for start in range(0, len(line), MAX_LINE)]


def whole_lines(data: bytes) -> bytes:
    """What follows the first end of a line: the beginning of a block that was cut anywhere is part of a line."""
    return data.split(b"\n", 1)[-1]


def entries(data: bytes, source: str, *, console: bool, last: int) -> list[dict[str, Any]]:
    """The last entries of a block of a log. A console's lines carry their times, a program's have none."""
    return [console_entry(line, source) if console else entry(line, source, None) for line in _last(data, last)]


def entry(line: bytes, source: str, timestamp: str | None, stream: str = "stdout") -> dict[str, Any]:
    """Bytes that are no UTF-8 are replaced. A program's two streams share a log, so all of it is `stdout`."""
    text = line.decode("utf-8", errors="replace")
    return {"line": text, "message": text, "timestamp": timestamp, "stream": stream, "source": source}


def console_entry(line: bytes, source: str) -> dict[str, Any]:
    timestamp, text = take_stamp(line)
    return entry(text, source, timestamp, "console")


def _last(data: bytes, count: int) -> list[bytes]:
    return [line for line in split_lines(data) if take_stamp(line)[1]][-count:] if count else []
