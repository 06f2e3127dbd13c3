"""Gives each request body a length and drains what the application leaves unread. Imports no Django.

Django goes by Content-Length alone and would treat a chunked body as empty, so such a body is read first.

A request is often refused before its body is read. The server then closes the connection after the response, without
having announced it, while the edge already sends the next request on it: that one, of any other caller, would be a 503.
So would the refusal itself, where the edge is still sending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

PIECE_BYTES = 64 * 1024
# Threads of a process that drain bodies at once: a sender may be arbitrarily slow, and occupies one of them.
DRAINING_THREADS = 4

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class DrainRequestBody:
    """WSGI middleware: request bodies have a length and are read to their end.

    With more than `limit` bytes left, or too many other bodies being drained, the response closes the connection
    instead. A chunked body of more than `limit` bytes gets a length of one byte more than `limit`.
    """

    def __init__(self, application: Application, limit: int) -> None:
        self._application = application
        self._limit = limit
        self._draining = threading.BoundedSemaphore(DRAINING_THREADS)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        length, chunked = environ.get("CONTENT_LENGTH") or "0", "HTTP_TRANSFER_ENCODING" in environ
        if length == "0" and not chunked:
            return self._application(environ, start_response)
        if chunked:
            body = self._read_chunked(environ)
        else:
            body = Body(environ["wsgi.input"], int(length) if length.isdecimal() else None)
        environ["wsgi.input"] = body

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            # The application has finished by now: it reads no more of the body.
            if not self._drain(body):
                headers = [*headers, ("Connection", "close")]
            return start_response(status, headers, *rest)

        return self._application(environ, start)

    def _read_chunked(self, environ: Environ) -> Body:
        """A chunked body with its length; the edge in front passes on complete bodies only."""
        data = b""
        while len(data) <= self._limit and (more := environ["wsgi.input"].read(self._limit + 1 - len(data))):
            data += more
        environ["CONTENT_LENGTH"] = str(len(data))
        del environ["HTTP_TRANSFER_ENCODING"]
        return Body(BytesIO(data), len(data) if len(data) <= self._limit else None)

    def _drain(self, body: Body) -> bool:
        if body.is_at_end():
            return True
        if not self._draining.acquire(blocking=False):
            return False
        try:
            return body.drain(self._limit)
        finally:
            self._draining.release()


class Body:
    """`wsgi.input` that counts what is left of it. `length` in bytes; None: unknown until its end."""

    def __init__(self, source: Any, length: int | None) -> None:
        self._source = source
        self._left = length

    def read(self, size: int = -1) -> bytes:
        return self._count(self._source.read(size), size)

    def readline(self, size: int = -1) -> bytes:
        return self._count(self._source.readline(size), size)

    def is_at_end(self) -> bool:
        return self._left == 0

    def drain(self, limit: int) -> bool:
        """Read what is left; False where that is more than `limit`, or cannot be known."""
        if self._left is None or self._left > limit:
            return False
        while self._left:
            self.read(min(self._left, PIECE_BYTES))
        return True

    def _count(self, got: bytes, size: int) -> bytes:
        if not got and size != 0:
            self._left = 0
        elif self._left is not None:
            self._left = max(self._left - len(got), 0)
        return got
