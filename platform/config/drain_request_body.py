"""WSGI middleware that gives chunked bodies a length, refuses those that end early, and drains those that the
application did not read. No Django.

Django goes by Content-Length alone and would take a chunked body for an empty one, so such a body is read first.

The server reports a body that was cut off like one that ended: `read` returns what there was. Carried out, a request
whose client died in the middle would do something else than it says, so reading such a body raises BodyEndedEarly.

An error response is often sent before the body is read. The server then closes the connection without announcing it,
while the edge already sends the next request on it: that request, possibly of another client, would get a 503. So would
the error response itself, if the edge is still sending the body.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

CHUNK_BYTES = 64 * 1024
# Threads of a process that may drain at once: a client may send as slowly as it likes, and holds one of them.
MAX_DRAINING = 4

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class BodyEndedEarly(OSError):
    """The connection ended before the body did. Django turns an OSError of `wsgi.input` into UnreadablePostError."""


class DrainRequestBody:
    """The application gets only requests with a length, and their bodies are drained before the response starts.

    If more than `limit` bytes are left, or MAX_DRAINING others drain at that moment, the response says
    `Connection: close` instead. A chunked body of more than `limit` bytes gets its length, which is refused by that.
    """

    def __init__(self, application: Application, limit: int) -> None:
        self._application = application
        self._limit = limit
        self._slots = threading.BoundedSemaphore(MAX_DRAINING)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        length, chunked = environ.get("CONTENT_LENGTH") or "0", "HTTP_TRANSFER_ENCODING" in environ
        if length == "0" and not chunked:
            return self._application(environ, start_response)
        if chunked:
            body = self._read_chunked(environ)
        else:
            body = CountedBody(environ["wsgi.input"], int(length) if length.isdecimal() else None)
        environ["wsgi.input"] = body

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            # The application has made its response: it does not read the rest of the body any more.
            if not self._drain(body):
                headers = [*headers, ("Connection", "close")]
            return start_response(status, headers, *rest)

        return self._application(environ, start)

    def _read_chunked(self, environ: Environ) -> CountedBody:
        """Read a chunked body to set its length; the edge buffers bodies, so this does not wait for a slow client.

        By one call without a size: of all the server's methods only that one tells a body whose last chunk is missing
        from a complete one, by returning nothing of it. It has no limit of its own; the edge's `request_body` is the
        limit, and no other process may connect to the api's socket. The edge sends an empty body with a length, so
        that nothing always means a body that ended early.
        """
        data = environ["wsgi.input"].read()
        del environ["HTTP_TRANSFER_ENCODING"]
        environ["CONTENT_LENGTH"] = str(len(data) or 1)
        return CountedBody(BytesIO(data), None if len(data) > self._limit else len(data) or 1)

    def _drain(self, body: CountedBody) -> bool:
        if body.is_at_end():
            return True
        if not self._slots.acquire(blocking=False):
            return False
        try:
            return body.drain(self._limit)
        except BodyEndedEarly:
            return False
        finally:
            self._slots.release()


class CountedBody:
    """A `wsgi.input` that counts how much of it is left. `length` in bytes; None: unknown until its end."""

    def __init__(self, source: Any, length: int | None) -> None:
        self._source = source
        self._left = length

    def read(self, size: int = -1) -> bytes:
        """As many bytes as asked for and left. Raise BodyEndedEarly if the source has fewer."""
        if self._left is None:
            return self._counted(self._source.read(size) if size >= 0 else self._source.read(), size)
        wanted = self._left if size < 0 else min(size, self._left)
        found = b""
        while len(found) < wanted:
            found += self._counted(self._source.read(wanted - len(found)), wanted - len(found))
        return found

    def readline(self, size: int = -1) -> bytes:
        return self._counted(self._source.readline(size), size)

    def is_at_end(self) -> bool:
        return self._left == 0

    def drain(self, limit: int) -> bool:
        """Read and drop the rest; False, with nothing read, if it is more than `limit` or of unknown length.

        Raise BodyEndedEarly.
        """
        if self._left is None or self._left > limit:
            return False
        while self._left:
            self.read(min(self._left, CHUNK_BYTES))
        return True

    def _counted(self, got: bytes, size: int) -> bytes:
        if not got and size != 0:
            if self._left:
                raise BodyEndedEarly(f"{self._left} bytes less than announced")
            self._left = 0
        elif self._left is not None:
            self._left = max(self._left - len(got), 0)
        return got
