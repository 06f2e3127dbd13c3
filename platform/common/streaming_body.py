"""Streaming request bodies under ASGI.

Django's ASGI handler spools the whole body into a file before anything else runs, so bodies that are too large are
refused here. The body of a streaming upload goes to its view in chunks instead: one chunk is in memory, and a client
that sends faster than the guest receives waits.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest

from common.body_rules import rule_of_request
from common.errors import BodyEndedEarly, DomainError

CHUNK_BYTES = 240 * 1024  # what one request to a guest's file server carries
STALL_SECONDS = 60.0
# Bytes that have come are passed on after so long without more: a body that stalls holds no memory.
FLUSH_SECONDS = 1.0
# The rest of a refused body is read within these bounds, so that its client gets to read the response.
DRAIN_BYTES = 64 * 1024 * 1024
DRAIN_SECONDS = 10.0
# And this much more beside the response.
LINGER_BYTES = 16 * 1024 * 1024
LINGER_SECONDS = 3.0
_SCOPE_KEY = "common.streaming_body"
_TOO_LARGE = "common.streaming_body.too_large"
_REFUSED = "common.streaming_body.refused"

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_NO_MORE: Message = {"type": "http.response.body", "body": b"", "more_body": False}
_EMPTY_BODY: Message = {"type": "http.request", "body": b"", "more_body": False}


class RequestStalled(DomainError):
    code = "request_timeout"
    status = 408
    message = "The request body stalled."


class ClientDisconnected(BodyEndedEarly):
    """The client closed the connection while its body was read. The server has closed it too, so no client gets this
    response.
    """


class StreamingBody:
    """The body of one request. All methods are for the loop that serves the request."""

    def __init__(self, receive: Receive, *, complete: bool = False) -> None:
        self._receive = receive
        self._complete = asyncio.Event()
        if complete:
            self._complete.set()
        self._disconnected = False
        self._lock = asyncio.Lock()
        # A view reads the body while it sends its response: it is not read and dropped before.
        self.is_read_alongside = False

    @property
    def is_complete(self) -> bool:
        """Return whether all of the body was read, or its client is gone."""
        return self._complete.is_set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield chunks of about CHUNK_BYTES; less if no more comes for FLUSH_SECONDS. Raise ClientDisconnected,
        RequestStalled.
        """
        buffer = bytearray()
        try:
            while (found := await self._next_soon(buffer)) is not None:
                buffer += found
                if len(buffer) >= CHUNK_BYTES or (buffer and not found):
                    yield bytes(buffer)
                    buffer = bytearray()
        except (ClientDisconnected, RequestStalled):
            # An upload that can be resumed keeps all that has come.
            if buffer:
                yield bytes(buffer)
            raise
        if buffer:
            yield bytes(buffer)

    async def _next_soon(self, buffer: bytearray) -> bytes | None:
        """Return the next bytes; empty if nothing has come for a while and there is something to pass on."""
        try:
            return await self._next(FLUSH_SECONDS if buffer else STALL_SECONDS)
        except RequestStalled:
            if not buffer:
                raise
            return b""

    async def next_piece(self) -> bytes | None:
        """Return what has come, however long that takes; None after the end. Raise ClientDisconnected."""
        while (found := await self._next(None)) == b"":
            pass
        return found

    async def drain(self, most: int, seconds: float) -> int:
        """Read and drop the rest, within these bounds. Return how many bytes it was."""
        if self.is_read_alongside:
            return 0
        left = most
        try:
            async with asyncio.timeout(seconds):
                while left > 0 and (found := await self._next(seconds)) is not None:
                    left -= len(found)
        except (TimeoutError, RequestStalled, ClientDisconnected):
            pass
        return most - left

    async def receive_disconnect(self) -> Message:
        """Return the message that follows the body: that the client disconnected."""
        await self._complete.wait()
        return {"type": "http.disconnect"} if self._disconnected else await self._receive()

    async def _next(self, seconds: float | None) -> bytes | None:
        async with self._lock:
            if self._disconnected:
                raise ClientDisconnected
            if self._complete.is_set():
                return None
            try:
                async with asyncio.timeout(seconds):
                    message = await self._receive()
            except TimeoutError as exc:
                raise RequestStalled from exc
            if message["type"] == "http.disconnect":
                self._disconnected = True
            if self._disconnected or not message.get("more_body", False):
                self._complete.set()
            if self._disconnected:
                raise ClientDisconnected
            return bytes(message.get("body", b""))


class StreamingHandler(ASGIHandler):
    """Django's handler. Bodies that are streamed (`common.body_rules`) are read by their view, with `body_chunks`."""

    async def handle(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        kind = _header(scope, b"content-type")
        rule = rule_of_request(scope["method"], scope["path"])
        limit = 0 if rule.is_streamed(kind) else rule.limit(kind)
        handled = _HandledRequest(scope, receive, limit)
        if _REFUSED in scope and not _header(scope, b"content-length"):
            await handled.drop(limit)

        async def drain_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                await handled.drain()
            elif handled.is_still_sent and not message.get("more_body", False):
                # The server closes the connection after the last message, and unread bytes would reset
                # it: the edge, or the client, would get that in place of the response.
                await send({**message, "more_body": True})
                await handled.linger()
                message = _NO_MORE
            await send(message)

        await super().handle(handled.scope, handled.receive, drain_and_send)


class _HandledRequest:
    """A request as Django's handler gets it. With a `limit` of 0 the handler gets no body, and the view does."""

    def __init__(self, scope: Mapping[str, Any], receive: Receive, limit: int) -> None:
        self.scope = dict(scope)
        self._receive = receive
        self._left = self._limit = limit
        self._stream: StreamingBody | None = None
        if not limit:
            self.scope[_SCOPE_KEY] = self._stream = StreamingBody(receive)
        elif _content_length(scope) > limit:
            self._refuse(complete=False)
        elif _REFUSED in scope:
            self._stream = StreamingBody(receive)
        self._sent_empty = self._stream is None

    async def receive(self) -> Message:
        if not self._sent_empty:
            self._sent_empty = True
            return _EMPTY_BODY
        if self._stream is not None:
            return await self._stream.receive_disconnect()
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left >= 0:
            if not message.get("more_body", False):
                self._set_length()
            return message
        self._refuse(complete=not message.get("more_body", False))
        return _EMPTY_BODY

    @property
    def is_still_sent(self) -> bool:
        """Return whether more of a refused body has come than is read before the response."""
        return self._stream is not None and not self._stream.is_complete

    async def drain(self) -> None:
        if self._stream is not None:
            await self._stream.drain(DRAIN_BYTES, DRAIN_SECONDS)

    async def linger(self) -> None:
        if self._stream is not None:
            await self._stream.drain(LINGER_BYTES, LINGER_SECONDS)

    async def drop(self, limit: int) -> None:
        """Drain a body; without a length, only its end shows whether it is too large, and that error comes first."""
        if self._stream is not None and await self._stream.drain(DRAIN_BYTES, DRAIN_SECONDS) > limit:
            self.scope[_TOO_LARGE] = True

    def _set_length(self) -> None:
        """REST framework takes a body without a Content-Length, such as a chunked one, for an empty one. Django builds
        the request from the scope after the body is complete, so the header can still be added.
        """
        size = self._limit - self._left
        if size and not _header(self.scope, b"content-length"):
            self.scope["headers"] = [*self.scope["headers"], (b"content-length", b"%d" % size)]

    def _refuse(self, *, complete: bool) -> None:
        self.scope[_TOO_LARGE] = True
        self._stream = StreamingBody(self._receive, complete=complete)


def _header(scope: Mapping[str, Any], name: bytes) -> str:
    """Return the last one of this name; empty if there is none."""
    found = [value for given, value in scope["headers"] if given == name]
    return found[-1].decode("latin-1") if found else ""


def _content_length(scope: Mapping[str, Any]) -> int:
    value = _header(scope, b"content-length")
    return int(value) if re.fullmatch(r"[0-9]{1,18}", value) else 0


def body_was_too_large(request: HttpRequest) -> bool:
    """Return whether the body was dropped because it exceeded its rule's limit."""
    return _TOO_LARGE in getattr(request, "scope", {})


def refuse_body(scope: Mapping[str, Any], error: DomainError) -> dict[str, Any]:
    """Return the scope of a request whose body is dropped, and whose response is this error."""
    return {**scope, _REFUSED: error}


def body_refusal(request: HttpRequest) -> DomainError | None:
    """Return the error for which the body was dropped before the request was handled."""
    found: DomainError | None = getattr(request, "scope", {}).get(_REFUSED)
    return found


def stored_bytes(scope: Mapping[str, Any]) -> int:
    """Return how many bytes of a body are stored before a view runs, at most; 0 for one that is streamed or refused."""
    kind = _header(scope, b"content-type")
    rule = rule_of_request(scope["method"], scope["path"])
    limit, announced = rule.limit(kind), _content_length(scope)
    if rule.is_streamed(kind) or announced > limit:
        return 0
    return limit if _header(scope, b"transfer-encoding") else announced


async def body_chunks(request: HttpRequest) -> AsyncIterator[bytes]:
    """Yield the body of a request, streamed or spooled. Raise ClientDisconnected, RequestStalled."""
    body = getattr(request, "scope", {}).get(_SCOPE_KEY)
    if body is not None:
        async for chunk in body.chunks():
            yield chunk
            del chunk  # before the next one is waited for
        return
    while chunk := await asyncio.to_thread(request.read, CHUNK_BYTES):
        yield chunk


class BodyPieces:
    """The body of a request as it comes, for a view that reads it while it sends its response. The view must `close` it
    at the end of that.
    """

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self._body: StreamingBody | None = getattr(request, "scope", {}).get(_SCOPE_KEY)
        if self._body is not None:
            self._body.is_read_alongside = True

    def __aiter__(self) -> BodyPieces:
        return self

    async def __anext__(self) -> bytes:
        """Return the next bytes. Raise ClientDisconnected."""
        if self._body is not None:
            piece = await self._body.next_piece()
        else:
            piece = await asyncio.to_thread(self._request.read, CHUNK_BYTES)
        if not piece:
            raise StopAsyncIteration
        return piece

    def close(self) -> None:
        """Leave the rest to the server, which reads and drops it. Idempotent."""
        if self._body is not None:
            self._body.is_read_alongside = False
