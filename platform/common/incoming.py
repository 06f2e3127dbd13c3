"""Request bodies as they come.

Django's ASGI handler takes the whole body into a file on this host before anything else runs, so it is here that one
which is too large ends. Where a body only passes through, to somebody who takes it in pieces, its view gets it from
here instead: nothing is held but one piece, and a sender who is quicker than the receiver waits.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest

from common.errors import DomainError

RAW = "application/octet-stream"
PIECE = 240 * 1024  # bytes; what one request to a guest's file server carries
STALL_SECONDS = 60.0
# What is still read of a body nobody wants, so that its sender gets to read the answer.
DRAIN_BYTES = 64 * 1024 * 1024
DRAIN_SECONDS = 10.0
_PATHS = re.compile(r"/workspace/[^/]+/overlay/files")
_KEY = "common.incoming"
_TOO_LARGE = "common.incoming.too_large"

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_NOTHING: Message = {"type": "http.request", "body": b"", "more_body": False}


class RequestStalled(DomainError):
    code = "request_timeout"
    status = 408
    message = "The body stopped coming."


class SenderGone(DomainError):
    """Nobody is there to read this; it ends what reads the body."""

    code = "request_aborted"
    status = 400
    message = "The sender went away."


class IncomingBody:
    """One request's body. Every method is for the loop that serves the request."""

    def __init__(self, receive: Receive, *, over: bool = False) -> None:
        self._receive = receive
        self._over = asyncio.Event()  # no more of it will come
        if over:
            self._over.set()
        self._gone = False
        self._turn = asyncio.Lock()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Pieces of about PIECE bytes. Raises SenderGone, RequestStalled."""
        waiting = bytearray()
        while (found := await self._next(STALL_SECONDS)) is not None:
            waiting += found
            if len(waiting) >= PIECE:
                yield bytes(waiting)
                waiting.clear()
        if waiting:
            yield bytes(waiting)

    async def drain(self) -> None:
        """Read and drop what is left of it, within bounds."""
        left = DRAIN_BYTES
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while left > 0 and (found := await self._next(DRAIN_SECONDS)) is not None:
                    left -= len(found)
        except (TimeoutError, RequestStalled, SenderGone):
            return

    async def after(self) -> Message:
        """What the server says once the body is over: that the sender went away."""
        await self._over.wait()
        return {"type": "http.disconnect"} if self._gone else await self._receive()

    async def _next(self, seconds: float) -> bytes | None:
        async with self._turn:
            if self._gone:
                raise SenderGone
            if self._over.is_set():
                return None
            try:
                async with asyncio.timeout(seconds):
                    message = await self._receive()
            except TimeoutError as exc:
                raise RequestStalled from exc
            if message["type"] == "http.disconnect":
                self._gone = True
            if self._gone or not message.get("more_body", False):
                self._over.set()
            if self._gone:
                raise SenderGone
            return bytes(message.get("body", b""))


class StreamingHandler(ASGIHandler):
    """Django's handler; the views of the paths above read raw bodies by `pieces`, others are taken within bounds."""

    async def handle(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        limit = 0 if _passes_through(scope) else body_limit(scope["path"], _header(scope, b"content-type"))
        handed = _Handed(scope, receive, limit)

        async def send_after(message: Message) -> None:
            if message["type"] == "http.response.start":
                await handed.drain()
            await send(message)

        await super().handle(handed.scope, handed.receive, send_after)


class _Handed:
    """What Django's handler is given of a request. With a `limit` of 0 it gets no body, and the view does."""

    def __init__(self, scope: Mapping[str, Any], receive: Receive, limit: int) -> None:
        self.scope = dict(scope)
        self._receive = receive
        self._left = self._limit = limit
        self._rest: IncomingBody | None = None
        if not limit:
            self.scope[_KEY] = self._rest = IncomingBody(receive)
        elif _announced(scope) > limit:
            self._refuse(over=False)
        self._told = self._rest is None

    async def receive(self) -> Message:
        if not self._told:
            self._told = True
            return _NOTHING
        if self._rest is not None:
            return await self._rest.after()
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left >= 0:
            if not message.get("more_body", False):
                self._measure()
            return message
        self._refuse(over=not message.get("more_body", False))
        return _NOTHING

    async def drain(self) -> None:
        if self._rest is not None:
            await self._rest.drain()

    def _measure(self) -> None:
        """REST framework takes a body without a length, as a chunked one is, for an empty one. Django makes the request
        of the scope when the body is there.
        """
        came = self._limit - self._left
        if came and not _header(self.scope, b"content-length"):
            self.scope["headers"] = [*self.scope["headers"], (b"content-length", b"%d" % came)]

    def _refuse(self, *, over: bool) -> None:
        self.scope[_TOO_LARGE] = True
        self._rest = IncomingBody(self._receive, over=over)


def _passes_through(scope: Mapping[str, Any]) -> bool:
    if scope["method"] != "POST" or _PATHS.fullmatch(scope["path"]) is None:
        return False
    return is_raw(_header(scope, b"content-type"))


def _header(scope: Mapping[str, Any], name: bytes) -> str:
    """The last one of this name; empty where there is none."""
    found = [value for given, value in scope["headers"] if given == name]
    return found[-1].decode("latin-1") if found else ""


def _announced(scope: Mapping[str, Any]) -> int:
    told = _header(scope, b"content-length")
    return int(told) if re.fullmatch(r"[0-9]{1,18}", told) else 0


def is_raw(content_type: str) -> bool:
    return content_type.split(";", 1)[0].strip().lower() == RAW


def body_limit(path: str, content_type: str = "") -> int:
    """Bytes accepted in a body: file writes carry base64 inside JSON, so theirs is a third above the file's."""
    if path.endswith("/overlay/files"):
        if is_raw(content_type):
            return settings.FILE_STREAM_LIMIT
        return settings.FILE_WRITE_LIMIT * 4 // 3 + 64 * 1024
    return settings.BODY_LIMIT


def was_too_large(request: HttpRequest) -> bool:
    """Whether a body was not taken because there was more of it than `body_limit`."""
    return _TOO_LARGE in getattr(request, "scope", {})


async def pieces(request: HttpRequest) -> AsyncIterator[bytes]:
    """The body of a request, wherever it is. Raises SenderGone, RequestStalled."""
    body = getattr(request, "scope", {}).get(_KEY)
    if body is not None:
        async for piece in body.pieces():
            yield piece
        return
    while piece := await asyncio.to_thread(request.read, PIECE):
        yield piece
