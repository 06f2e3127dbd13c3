"""Server-sent events (the HTML standard, 9.2.6), from bytes as they come to the data of events.

Lines end with LF, CR or CRLF, an event may have several lines of data, and the stream may begin with a byte order mark.
Unlike there, an event that the end of the stream cuts off before its empty line counts: some servers end that way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_EVENT_BYTES = 2 * 1024 * 1024
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventTooLarge(Exception):
    """Event, or line of an event, with more than MAX_EVENT_BYTES."""


class EventReader:
    """Reader that is fed with the bytes of a stream. Raises EventTooLarge."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._is_first_line = True
        self._is_after_cr = False

    def feed(self, received: bytes) -> Iterator[bytes]:
        """Yield the data of each event that ends within these bytes."""
        if self._is_after_cr and received.startswith(b"\n"):
            received = received[1:]  # the LF of a CRLF that came in two pieces
        if received:
            self._is_after_cr = received.endswith(b"\r")
        *ended, rest = _LINE_END.split(received)
        for line in ended:
            yield from self._read_line(bytes(self._line) + line)
            self._line.clear()
        self._line += rest
        if len(self._line) > MAX_EVENT_BYTES:
            raise EventTooLarge

    def end(self) -> Iterator[bytes]:
        """Yield the data of an event that the end of the stream cut off."""
        yield from self._read_line(bytes(self._line))
        yield from self._read_line(b"")

    def _read_line(self, line: bytes) -> Iterator[bytes]:
        if self._is_first_line:
            line, self._is_first_line = line.removeprefix(_BYTE_ORDER_MARK), False
        if not line:
            if self._data:
                yield b"\n".join(self._data)
            self._data, self._size = [], 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":  # other lines are comments, or fields without a use here
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
        if self._size > MAX_EVENT_BYTES:
            raise EventTooLarge
