"""File of a multipart body, found while the body is received. The form is parsed to its end: it has one file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from rest_framework.serializers import ValidationError as FieldError

from cdn.fields import FILENAME_BYTES, plain_text
from common.errors import BodyEndedEarly, UnsupportedMediaType, ValidationError

FIELD = "file"
# Limit for other fields and headers before the file, and for those after it.
OTHER_BYTES = 64 * 1024
# Bytes that are parsed at a time: before the file, or after its end, few bytes may cost much (blank lines, parts).
STEP_BYTES = 4096
# A file up to this size is received before its permit is made, so that the permit is for exactly its bytes. Each upload
# holds it in memory, in addition to the process's reserve for bodies.
HELD_BYTES = 64 * 1024
_BLANK_LINE = b"\r\n\r\n"


class FormFile:
    """Reader of the file of one request: call `begin` first, then `pieces`, once."""

    def __init__(self, body: AsyncIterator[bytes], content_type: str, length: int | None) -> None:
        """Take a body. `length`: the body's length, if it is known. Raise UnsupportedMediaType, ValidationError."""
        self._body, self._length = body, length
        self._boundary = _boundary(content_type)
        self._head_bytes = self._tail_bytes = 0
        # The last bytes of the head: a blank line may begin in them.
        self._line_begun = b""
        self._disposition, self._type, self._header = b"", b"", [b"", b""]
        self._found = bytearray()  # one buffer: the parser may hand over two bytes at a time
        self._is_file = self._begun = self._part_ended = self._ended = self._received = False
        self.filename, self.content_type = "", ""
        self._parser = MultipartParser(self._boundary, self._callbacks())  # type: ignore[arg-type]

    async def begin(self) -> int:
        """Read up to the file and some of it, or the whole form if it is small; return the file's size.

        For a file above 64 KiB this is the size of the rest of the body, which what follows the file makes larger; or,
        if the body's length is not known, of what has come. Raise ValidationError (no file, two, no form),
        BodyEndedEarly, and errors of the body.
        """
        async for piece in self._body:
            await self._feed(piece)
            del piece  # a body that stalls holds no more than is needed
            if len(self._found) > HELD_BYTES:
                break
        else:
            self._require_whole()
        if self._received or self._length is None:
            return len(self._found)
        return self._length - self._head_bytes - len(b"\r\n--" + self._boundary + b"--")

    def _require_whole(self) -> None:
        """Take note that the body has ended. Raise BodyEndedEarly, or ValidationError if the form has no file."""
        self._received = True
        if not self._ended:
            raise BodyEndedEarly
        if not self._begun:
            raise _refused("Send the file as this field of the form.")

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the file, to the form's end. Raise BodyEndedEarly, ValidationError, and errors of the
        body.
        """
        yield self._take()
        if self._received:
            return
        async for received in self._body:
            await self._feed(received)
            del received  # a body that stalls holds no memory
            if self._found:
                yield self._take()
        self._require_whole()

    def _take(self) -> bytes:
        found = bytes(self._found)
        self._found.clear()
        return found

    async def _feed(self, piece: bytes) -> None:
        """Parse a piece in steps. Before the file and after it, each step yields to the event loop."""
        at = 0
        while at < len(piece):
            end = min(at + STEP_BYTES, len(piece))
            if not self._begun:
                at = self._feed_head(piece, at, end)
                await asyncio.sleep(0)
            elif self._part_ended:
                self._feed_tail(piece[at:end])
                at = end
                await asyncio.sleep(0)
            else:
                self._parse(piece[at:end])
                at = end

    def _feed_head(self, piece: bytes, at: int, end: int) -> int:
        """Parse up to `end` or to the file; return how far. Blank lines are found so that the file's beginning is
        known.
        """
        while at < end and not self._begun:
            line_end = self._blank_line_end(piece, at, end)
            self._parse(piece[at:line_end])
            self._head_bytes += line_end - at
            at = line_end
        if self._head_bytes > OTHER_BYTES:
            raise _refused(f"The file must begin within the first {OTHER_BYTES} bytes of the form.")
        return at

    def _feed_tail(self, data: bytes) -> None:
        self._tail_bytes += len(data)
        if self._tail_bytes > OTHER_BYTES:
            raise _refused(f"At most {OTHER_BYTES} bytes of the form may follow the file.")
        self._parse(data)

    def _blank_line_end(self, piece: bytes, at: int, end: int) -> int:
        """Return the end of the next blank line, which may begin before `at`; `end` if there is none."""
        sought = self._line_begun + piece[at:end]
        found = sought.find(_BLANK_LINE)
        if found < 0:
            self._line_begun = sought[1 - len(_BLANK_LINE) :]
            return end
        line_end = at + found + len(_BLANK_LINE) - len(self._line_begun)
        self._line_begun = b""
        return line_end

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.write(data)
        except FormParserError as exc:
            raise ValidationError("The body is not a multipart form.") from exc

    def _callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._on_part_begin,
            "on_header_field": lambda data, start, end: self._add_header(0, data[start:end]),
            "on_header_value": lambda data, start, end: self._add_header(1, data[start:end]),
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": self._on_part_data,
            "on_part_end": self._on_part_end,
            "on_end": self._on_end,
        }

    def _on_part_begin(self) -> None:
        self._disposition, self._type = b"", b""

    def _add_header(self, at: int, data: bytes) -> None:
        self._header[at] += data

    def _on_header_end(self) -> None:
        name, value = self._header
        self._header = [b"", b""]
        if name.lower() == b"content-disposition":
            self._disposition = value
        elif name.lower() == b"content-type":
            self._type = value

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        if options.get(b"name") != FIELD.encode():
            return
        if self._begun:
            raise _refused("The form has this field twice; send each file by a request of its own.")
        self.filename = _base_name(options.get(b"filename", b""))
        self.content_type = _text(self._type, "A media type") if self._type else ""
        self._is_file = self._begun = True

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._found += data[start:end]

    def _on_part_end(self) -> None:
        self._part_ended = self._part_ended or self._is_file
        self._is_file = False

    def _on_end(self) -> None:
        self._ended = True


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data":
        raise UnsupportedMediaType(f"Send a form (multipart/form-data) with the field `{FIELD}`.")
    if not boundary:
        raise ValidationError(details={"Content-Type": ["The boundary of the form is missing."]})
    return boundary


def _base_name(value: bytes) -> str:
    """Return the name without the folders that some clients send with it (RFC 7578, 4.2). Raise ValidationError."""
    name = _text(value.replace(b"\\", b"/").rsplit(b"/", 1)[-1], "A file name")
    if name in (".", ".."):
        raise _refused("A file name cannot be that of a folder.")
    return name


def _text(value: bytes, what: str) -> str:
    """Return the decoded text. Raise ValidationError."""
    try:
        return plain_text(value.decode(), FILENAME_BYTES, what)
    except UnicodeDecodeError as exc:
        raise _refused(f"{what} must be UTF-8.") from exc
    except FieldError as exc:
        raise _refused(str(exc.detail[0])) from exc  # type: ignore[index]


def _refused(sentence: str) -> ValidationError:
    return ValidationError(details={FIELD: [sentence]})
