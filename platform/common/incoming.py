"""Request bodies as they come.

Django's ASGI handler takes the whole body into a file on this host before a view runs. Where a body only passes
through, to somebody who takes it in pieces, its view gets it from here instead: nothing is held but one piece, and a
sender who is quicker than the receiver waits.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

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

Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


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

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._over = asyncio.Event()  # no more of it will come
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
    """Django's handler; the views of the paths above read raw bodies by `pieces`."""

    async def handle(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if not _passes_through(scope):
            await super().handle(scope, receive, send)
            return
        body = IncomingBody(receive)
        told = False

        async def receive_nothing() -> Message:
            nonlocal told
            if told:
                return await body.after()
            told = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send_after(message: Message) -> None:
            if message["type"] == "http.response.start":
                await body.drain()
            await send(message)

        await super().handle({**scope, _KEY: body}, receive_nothing, send_after)


def _passes_through(scope: Mapping[str, Any]) -> bool:
    if scope["method"] != "POST" or _PATHS.fullmatch(scope["path"]) is None:
        return False
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    return bool(kinds) and is_raw(kinds[-1].decode("latin-1"))


def is_raw(content_type: str) -> bool:
    return content_type.split(";", 1)[0].strip().lower() == RAW


async def pieces(request: HttpRequest) -> AsyncIterator[bytes]:
    """The body of a request, wherever it is. Raises SenderGone, RequestStalled."""
    body = getattr(request, "scope", {}).get(_KEY)
    if body is not None:
        async for piece in body.pieces():
            yield piece
        return
    while piece := await asyncio.to_thread(request.read, PIECE):
        yield piece
