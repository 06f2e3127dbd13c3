"""Frames of the hold's protocol: length (4 bytes, of what follows), type (1), id (4), fields; big-endian numbers."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from vmbackend.errors import GuestUnreachable

VERSION = 1
MAGIC = b"HOLD"
CLIENT_ID_BYTES = 16
# The longest frame of a guest, an event with two paths, has half of it.
MAX_FRAME = 32 * 1024
MAX_TERMINAL_ID = 255
MAX_OFFSET = (1 << 63) - 1
COMMAND_WORDS, WORD_BYTES = 256, 4096  # of a command in a list
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS = 253_402_300_799_000  # the end of the year 9999
_HEAD = struct.Struct(">IBI")
_OVERHEAD = 5  # bytes of type and id, which the length counts


class Request(IntEnum):
    """The frames that a client sends."""

    HELLO = 1
    CREATE = 2
    INPUT = 3
    RESIZE = 4
    LIST = 5
    CLOSE = 6
    ATTACH = 7
    DETACH = 8
    CREDIT = 9
    WATCH = 10
    UNWATCH = 11
    WATCH_CREDIT = 12
    BYE = 13
    MODES = 14
    RUN = 15
    STOP = 16
    TASK_START = 17
    TASK_LIST = 18
    TASK_SHOW = 19
    TASK_INPUT = 20
    TASK_REMOVE = 21
    TASK_FOLLOW = 22
    TASK_CREDIT = 23
    TASK_LEAVE = 24
    TERMINAL_SHOW = 25
    TERMINAL_READ = 26
    KEEP_WATCH = 27
    KEPT_LIST = 28
    KEPT_SHOW = 29
    KEPT_READ = 30
    KEPT_END = 31
    CHANGES = 32
    CONNECT = 48
    CONNECT_SEND = 49
    CONNECT_CREDIT = 50
    CONNECT_CLOSE = 51


class Answer(IntEnum):
    """The frames that a guest sends."""

    WELCOME = 129
    DONE = 130
    FAILED = 131
    OUTPUT = 132
    EXITED = 133
    EVENT = 134
    BEHIND = 135
    WRITTEN = 136
    TASK_OUTPUT = 137
    TASK_ENDED = 138
    CONNECT_DATA = 48
    CONNECT_ENDED = 49
    CONNECT_GRANT = 50


class Failure(IntEnum):
    """Codes of FAILED."""

    BAD_REQUEST = 1
    BAD_VERSION = 2
    NO_TERMINAL = 3
    NO_WATCH = 4
    TOO_MANY = 5
    INPUT_FULL = 6
    ENDED = 7
    BAD_SIZE = 8
    BAD_OFFSET = 9
    CANNOT_START = 10
    CANNOT_WATCH = 11
    NO_TASK = 12
    CANNOT_CONNECT = 48


class GuestGarbage(GuestUnreachable):
    """The guest violates the protocol of the hold."""

    def __init__(self) -> None:
        super().__init__("The machine's terminal service violates its protocol.")


def make_frame(kind: Request, request: int, *parts: bytes) -> bytes:
    """Return one frame; `request` is an id of the client's choice, at most 32 bits."""
    return b"".join((_HEAD.pack(sum(map(len, parts)) + _OVERHEAD, kind, request), *parts))


def number(value: int, size: int) -> bytes:
    """Return `value` in `size` bytes."""
    return value.to_bytes(size, "big")


def text(value: str) -> bytes:
    """Return a text field; file names that are no UTF-8 come from surrogateescape."""
    data = value.encode("utf-8", "surrogateescape")
    return number(len(data), 4) + data


def texts(values: Sequence[str]) -> bytes:
    """Return a list of texts."""
    return number(len(values), 4) + b"".join(map(text, values))


class Fields:
    """The fields of a received frame, in order. Raises GuestGarbage if they end early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def size(self) -> int:
        """Return bytes of all fields."""
        return len(self._data)

    @property
    def left(self) -> int:
        """Return bytes of the fields that are left."""
        return len(self._data) - self._at

    def number(self, size: int) -> int:
        """Return the next number of that many bytes."""
        return int.from_bytes(self.part(size), "big")

    def offset(self) -> int:
        """Return the next offset of an output. Raise GuestGarbage for one that no output reaches."""
        value = self.number(8)
        if value > MAX_OFFSET:
            raise GuestGarbage
        return value

    def terminal_id(self) -> int:
        """Return the next id of a terminal. Raise GuestGarbage for one that none has."""
        value = self.number(4)
        if not 1 <= value <= MAX_TERMINAL_ID:
            raise GuestGarbage
        return value

    def part(self, size: int) -> bytes:
        """Return the next bytes."""
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise GuestGarbage
        return self._data[start : self._at]

    def short_text(self, limit: int) -> str:
        """Return the next text. Raise GuestGarbage if it has more than `limit` bytes."""
        size = self.number(4)
        if size > limit:
            raise GuestGarbage
        return self.part(size).decode("utf-8", "replace")

    def time(self) -> datetime | None:
        """Return the next time, which is milliseconds since 1970; None for one of no event."""
        milliseconds = self.number(8)
        return None if not 0 < milliseconds <= _LAST_MS else _EPOCH + timedelta(milliseconds=milliseconds)

    def short_texts(self, count: int, limit: int) -> tuple[str, ...]:
        """Return the next list of texts. Raise GuestGarbage for more than `count`, or one of more than `limit`
        bytes.
        """
        number = self.number(4)
        if number > count:
            raise GuestGarbage
        return tuple(self.short_text(limit) for _ in range(number))

    def path(self, limit: int) -> str:
        """Return the next text, of which bytes that are no UTF-8 are kept by surrogateescape. Raise GuestGarbage for
        one that is no path.
        """
        size = self.number(4)
        if size > limit:
            raise GuestGarbage
        found = self.part(size)
        if b"\0" in found:
            raise GuestGarbage
        return found.decode("utf-8", "surrogateescape")

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        return self.part(len(self._data) - self._at)

    def require_end(self) -> None:
        """Raise GuestGarbage if fields are left."""
        if self._at != len(self._data):
            raise GuestGarbage


def read_nothing(fields: Fields) -> None:
    """Read an answer without fields."""
    fields.require_end()


class FrameReader:
    """A reader that cuts received bytes into frames; it keeps less than one frame and one received block."""

    def __init__(self) -> None:
        self._data = bytearray()

    def frames(self, block: bytes) -> Iterator[tuple[int, int, Fields]]:
        """Yield type, id and fields of each frame that is complete now. Raise GuestGarbage for one of a forbidden
        length.
        """
        self._data += block
        start = 0
        try:
            while len(self._data) - start >= _HEAD.size:
                length, kind, about = _HEAD.unpack_from(self._data, start)
                if not _OVERHEAD <= length <= MAX_FRAME:
                    raise GuestGarbage
                if len(self._data) - start < length + 4:
                    return
                body = bytes(self._data[start + _HEAD.size : start + 4 + length])
                start += length + 4
                yield kind, about, Fields(body)
        finally:
            del self._data[:start]
