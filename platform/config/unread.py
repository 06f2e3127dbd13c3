"""Bodies without a length, and the rest of a body that nobody read. Imports no Django.

Django goes by Content-Length alone and would take a chunked body for an empty one, so such a body is read first.

A refusal is often made before the body is read. The server then ends the connection after the answer, without having
said so, while the edge already sends the next request on it: that one, of any other caller, would be a 503. So would
the refusal itself, where the edge is still sending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

PIECE_BYTES = 64 * 1024
# Threads of a process that read such rests at once: a sender may be as slow as it likes, and holds one of them.
READERS = 4

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class ReadToEnd:
    """A WSGI application whose requests have a length and are read to their end.

    After one with more than `limit` bytes left, or where too many others are read just then, the connection is told to
    be over. A chunked body of more than `limit` bytes is announced as one byte too many.
    """

    def __init__(self, application: Application, limit: int) -> None:
        self._application = application
        self._limit = limit
        self._places = threading.BoundedSemaphore(READERS)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        length, chunked = environ.get("CONTENT_LENGTH") or "0", "HTTP_TRANSFER_ENCODING" in environ
        if length == "0" and not chunked:
            return self._application(environ, start_response)
        if chunked:
            body = self._measured(environ)
        else:
            body = Body(environ["wsgi.input"], int(length) if length.isdecimal() else None)
        environ["wsgi.input"] = body

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            # The application has done its work by now; what it has not read it will not read.
            if not self._read_to_end(body):
                headers = [*headers, ("Connection", "close")]
            return start_response(status, headers, *rest)

        return self._application(environ, start)

    def _measured(self, environ: Environ) -> Body:
        """A chunked body with its length; the edge in front gives only bodies that are there."""
        data = b""
        while len(data) <= self._limit and (more := environ["wsgi.input"].read(self._limit + 1 - len(data))):
            data += more
        environ["CONTENT_LENGTH"] = str(len(data))
        del environ["HTTP_TRANSFER_ENCODING"]
        return Body(BytesIO(data), len(data) if len(data) <= self._limit else None)

    def _read_to_end(self, body: Body) -> bool:
        if body.is_at_end():
            return True
        if not self._places.acquire(blocking=False):
            return False
        try:
            return body.read_to_end(self._limit)
        finally:
            self._places.release()


class Body:
    """`wsgi.input` that knows how much of it is left. `length` in bytes; None: only its end tells."""

    def __init__(self, source: Any, length: int | None) -> None:
        self._source = source
        self._left = length

    def read(self, size: int = -1) -> bytes:
        return self._seen(self._source.read(size), size)

    def readline(self, size: int = -1) -> bytes:
        return self._seen(self._source.readline(size), size)

    def is_at_end(self) -> bool:
        return self._left == 0

    def read_to_end(self, limit: int) -> bool:
        """Read what is left; False where that is more than `limit`, or cannot be known."""
        if self._left is None or self._left > limit:
            return False
        while self._left:
            self.read(min(self._left, PIECE_BYTES))
        return True

    def _seen(self, got: bytes, size: int) -> bytes:
        if not got and size != 0:
            self._left = 0
        elif self._left is not None:
            self._left = max(self._left - len(got), 0)
        return got
