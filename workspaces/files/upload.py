"""A file write's body, `{"path": ..., "content": "<base64>"}`, parsed in constant memory.

JSON parsers of the standard library and of PyPI return whole strings, which for a 64 MiB file is more than the file
itself. Therefore only the outer object is parsed here: keys and all other values are read by the standard library's
decoder, and `content` is decoded piece by piece into a spool file.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from common.errors import InvalidJson, PayloadTooLarge, ValidationError

CHUNK = 240 * 1024  # as much as one request to a guest's file server carries
MAX_SMALL = 64 * 1024  # bytes of a key, or of any value except the content
FIRST_WINDOW = 512  # decoded at first: most keys and values are short, and decoding costs by the window
MAX_FIELDS = 1000
MAX_ESCAPE = len("\\u0000")
_CHARACTERS = re.compile(rb"(?:[^\\]+|\\[^u]|\\u[0-9A-Fa-f]{4})*")
_NUMBER_REST = re.compile(rb"[0-9.eE+-]*")
_SPACE = re.compile(rb"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class Upload:
    """A parsed body: `fields` without the content, of which `size` bytes are in the spool."""

    fields: dict[str, Any]
    size: int


def read_upload(read: Callable[[int], bytes], spool: IO[bytes], limit: int) -> Upload:
    """Parse a body from `read(n)` into `spool`.

    Raise InvalidJson, ValidationError (not an object, no content, not base64), PayloadTooLarge (more than `limit`
    decoded bytes). The spool is the caller's, also on failure.
    """
    return _Body(read, spool, limit).parse()


class _Body:
    def __init__(self, read: Callable[[int], bytes], spool: IO[bytes], limit: int) -> None:
        self.read = read
        self.content = _Content(spool, limit)
        self.buffer = b""
        self.ended = False

    def parse(self) -> Upload:
        fields: dict[str, Any] = {}
        count = 0  # also of repeated names
        found = False
        self._expect(b"{")
        if self._peek() == b"}":
            raise ValidationError(details={"content": ["This field is required."]})
        while True:
            key = self._small()
            if not isinstance(key, str):
                raise InvalidJson("The body is not valid JSON: a key is not a string.")
            self._expect(b":")
            if key == "content" and found:
                raise InvalidJson("The body has two fields named content.")
            if key == "content" and self._peek() == b'"':
                self._long_string()
                found = True
            else:
                fields[key] = self._small()
                if (count := count + 1) > MAX_FIELDS:
                    raise InvalidJson(f"The body has more than {MAX_FIELDS} fields.")
            if self._next() == b"}":
                break
        self._end()
        if not found:
            raise ValidationError(details={"content": ["A base64 string is required."]})
        return Upload(fields, self.content.finish())

    def _fill(self) -> bool:
        chunk = b"" if self.ended else self.read(CHUNK)
        self.ended = not chunk
        self.buffer += chunk
        return bool(chunk)

    def _skip(self) -> None:
        while True:
            self.buffer = self.buffer[_SPACE.match(self.buffer).end() :]  # type: ignore[union-attr]
            if self.buffer or not self._fill():
                return

    def _peek(self) -> bytes:
        self._skip()
        return self.buffer[:1]

    def _expect(self, character: bytes) -> None:
        if self._peek() != character:
            raise InvalidJson(f"The body is not valid JSON: expected {character.decode()!r}.")
        self.buffer = self.buffer[1:]

    def _next(self) -> bytes:
        """Return the separator after a value: a comma, or the end of the object."""
        found = self._peek()
        if found not in (b",", b"}"):
            raise InvalidJson("The body is not valid JSON: expected ',' or '}'.")
        self.buffer = self.buffer[1:]
        return found

    def _end(self) -> None:
        if self._peek():
            raise InvalidJson("The body is not valid JSON: there is more after the object.")

    def _small(self) -> Any:
        """Return one key or value, by the standard library's decoder, of a bounded size."""
        self._skip()
        window = FIRST_WINDOW
        while True:
            head = self.buffer[:window]
            text = head.decode("utf-8", errors="surrogateescape")
            can_widen = window < min(MAX_SMALL, len(self.buffer))
            try:
                value, end = json.JSONDecoder().raw_decode(text)
            except (ValueError, RecursionError) as exc:
                if can_widen:
                    window = min(8 * window, MAX_SMALL)
                elif len(self.buffer) >= MAX_SMALL or not self._fill():
                    raise InvalidJson(
                        "The body is not valid JSON, or a field other than the content is too long."
                    ) from exc
                continue
            used = len(text[:end].encode("utf-8", errors="surrogateescape"))
            # A number at the end of the window, or of the buffer, may continue.
            if not isinstance(value, str | dict | list) and _NUMBER_REST.fullmatch(head, used) is not None:
                if can_widen:
                    window = min(8 * window, MAX_SMALL)
                    continue
                if len(self.buffer) < MAX_SMALL and self._fill():
                    continue
            self.buffer = self.buffer[used:]
            return value

    def _long_string(self) -> None:
        self.buffer = self.buffer[1:]
        while (end := self.buffer.find(b'"')) < 0:
            cut = _whole(self.buffer)
            self.content.feed(self.buffer[:cut])
            self.buffer = self.buffer[cut:]
            if not self._fill():
                raise InvalidJson("The body is not valid JSON: the content does not end.")
        self.content.feed(self.buffer[:end])
        self.buffer = self.buffer[end + 1 :]


def _whole(text: bytes) -> int:
    """Return the length up to the last complete character: an escape may be cut at the end of a chunk."""
    if b"\\" not in text[-MAX_ESCAPE:]:
        return len(text)
    end = _CHARACTERS.match(text).end()  # type: ignore[union-attr]
    # A longer rest is not an escape; the decoder rejects it.
    return end if len(text) - end < MAX_ESCAPE else len(text)


class _Content:
    """Base64 characters to bytes in the spool, four characters at a time."""

    def __init__(self, spool: IO[bytes], limit: int) -> None:
        self.spool = spool
        self.limit = limit
        self.size = 0
        self.rest = b""
        self.padded = False

    def feed(self, text: bytes) -> None:
        if b"\\" in text:
            text = _unescaped(text)
        whole = self.rest + text.translate(None, b"\r\n")
        even = len(whole) - len(whole) % 4
        self.rest = whole[even:]
        if even:
            self._decode(whole[:even])

    def finish(self) -> int:
        if self.rest:
            raise ValidationError(details={"content": ["Not valid base64."]})
        self.spool.seek(0)
        return self.size

    def _decode(self, text: bytes) -> None:
        try:
            data = binascii.a2b_base64(text, strict_mode=True)
        except binascii.Error:
            data = None
        if data is None or self.padded:  # nothing may follow the padding, in this chunk or a later one
            raise ValidationError(details={"content": ["Not valid base64."]})
        self.padded = text.endswith(b"=")
        self.size += len(data)
        if self.size > self.limit:
            raise PayloadTooLarge(f"A file of at most {self.limit} bytes can be written.")
        self.spool.write(data)


def _unescaped(text: bytes) -> bytes:
    try:
        return str(json.loads(b'"' + text + b'"')).encode()
    except ValueError as exc:
        raise InvalidJson(f"The body is not valid JSON: {exc}.") from exc
