"""One WebSocket to a server in a guest, by wsproto. For the event loop of the guest pool.

The server is hostile: its handshake is bounded by h11, its messages by MAX_MESSAGE, and CPU time that the smallest
frames take is charged to the guest. It may take what the client sends slowly, but not nothing: a client is not read
meanwhile, and has perhaps gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import h11
from wsproto import ConnectionType, WSConnection, events
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from common.errors import ValidationError
from vmbackend.guest.hold.connections import ConnectionBroken, HeldConnection
from vmbackend.guest.session import GuestSession
from workspaces.runtime.proxy import exchange
from workspaces.runtime.proxy.errors import ProxyRefused, ProxyTimeout
from workspaces.runtime.proxy.exchange import EVENTS_AT_ONCE, NO_ANSWER, NO_HTTP, TAKE_BYTES, AnswerHead, opened
from workspaces.runtime.proxy.targets import Headers, LoopbackPort
from workspaces.runtime.proxy.waiting_messages import TooMuchWaits, WaitingMessages

MAX_MESSAGE = 2 << 20
REFUSAL_BYTES = 64 * 1024
# For the server's part of a close that the client has begun.
CLOSE_SECONDS = 5.0
# For a server that takes nothing: TAKE_BYTES.
TAKE_SECONDS = 60.0
TOO_LARGE, FAILED, TRY_LATER, NO_CODE = 1009, 1011, 1013, 1005
# No close frame has these.
UNSENT = frozenset({1006, 1015})
BROKEN = "The server in the machine broke the connection off."
STUCK = "The server in the machine does not go on."
MUCH = "The sockets of the workspace have too much that waits."


@dataclass(frozen=True, slots=True)
class SocketRequest:
    """The handshake of a client, as the server gets it."""

    path: bytes
    headers: Headers
    subprotocols: tuple[str, ...]
    target: LoopbackPort


@dataclass(frozen=True, slots=True)
class SocketOpened:
    """The server's acceptance."""

    subprotocol: str | None


@dataclass(frozen=True, slots=True)
class SocketRefused:
    """The server's answer in place of an acceptance."""

    head: AnswerHead
    body: bytes


@dataclass(frozen=True, slots=True)
class SocketClosed:
    """The end, by either side."""

    code: int
    reason: str = ""


Said = SocketOpened | SocketRefused | SocketClosed | str | bytes
Message = str | bytes | SocketClosed


async def exchange_messages(
    session: GuestSession, request: SocketRequest, messages: AsyncIterator[Message]
) -> AsyncIterator[Said]:
    """Yield the server's acceptance or refusal, its messages and its close, while `messages` are sent.

    Raise ProxyRefused, ProxyTimeout, ValidationError before the acceptance, and what `opened` and `messages` raise.
    """
    async with opened(session, request.target) as connection:
        each = _Socket(connection)
        first = await each.begin(request)
        yield first
        if isinstance(first, SocketRefused):
            return
        sending = asyncio.ensure_future(each.send(messages))
        try:
            while not isinstance(said := await each.next_said(sending), SocketClosed):
                yield said
                each.note_taken(said)
            yield said
        finally:
            sending.cancel()
            await asyncio.wait([sending])
            each.waiting.clear()
            if not sending.cancelled():
                sending.exception()  # seen, though the server closed first


def _handshake(request: SocketRequest) -> events.Request:
    return events.Request(
        host=request.target.authority.decode(),
        target=request.path.decode("latin-1"),
        subprotocols=list(request.subprotocols),
        extra_headers=list(request.headers),
    )


class _Socket:
    """The state of one socket."""

    def __init__(self, connection: HeldConnection) -> None:
        self._connection = connection
        self._parser = WSConnection(ConnectionType.CLIENT)
        self._events = self._parser.events()
        self._parsed = 0
        self._begun = time.thread_time()
        self._writing = asyncio.Lock()
        self._message = bytearray()
        self._taken = 0  # bytes of the message that its client's connection has taken, but perhaps not sent
        self.waiting = WaitingMessages(connection.link)
        self._ends_at: float | None = None  # once the client has closed
        self._head: AnswerHead | None = None
        self._body = b""

    async def write(self, event: events.Event) -> None:
        """Send an event, of one writer after another."""
        async with self._writing:
            await self._write_bytes(self._parser.send(event))

    async def _write_bytes(self, data: bytes) -> None:
        """Send bytes. Raise TimeoutError for a server that takes nothing."""
        for at in range(0, len(data), TAKE_BYTES):
            async with asyncio.timeout(TAKE_SECONDS):
                await self._connection.write(data[at : at + TAKE_BYTES])

    async def send(self, messages: AsyncIterator[Message]) -> None:
        """Send what the client sends, and its close."""
        with suppress(LocalProtocolError):  # the server has closed meanwhile
            async for message in messages:
                self.waiting.add(size := _size(message))
                await self.write(_sent_event(message))
                self.waiting.remove(size)

    async def begin(self, request: SocketRequest) -> SocketOpened | SocketRefused:
        """Send the handshake and return its answer. Raise ProxyRefused, ProxyTimeout, ValidationError."""
        try:
            handshake = self._parser.send(_handshake(request))
        except (LocalProtocolError, h11.LocalProtocolError, UnicodeError) as exc:
            raise ValidationError(f"The request cannot be passed on: {exc}.") from exc
        return await self._answer_to(handshake)

    async def _answer_to(self, handshake: bytes) -> SocketOpened | SocketRefused:
        try:
            async with asyncio.timeout(exchange.HEAD_SECONDS):
                await self._write_bytes(handshake)
                while (found := self._answer_of(await self._next_event(None))) is None:
                    pass
        except TimeoutError as exc:
            raise ProxyTimeout from exc
        except (RemoteProtocolError, UnicodeError) as exc:  # the parser takes some headers for ASCII
            raise ProxyRefused(NO_HTTP) from exc
        except ConnectionBroken as exc:
            raise ProxyRefused(NO_ANSWER) from exc
        return found

    def _answer_of(self, event: events.Event) -> SocketOpened | SocketRefused | None:
        if isinstance(event, events.AcceptConnection):
            return SocketOpened(event.subprotocol)
        if isinstance(event, events.RejectConnection):
            if not 200 <= event.status_code <= exchange.MAX_STATUS:
                raise ProxyRefused(NO_HTTP)
            if len(event.headers) > exchange.MAX_HEADERS:
                raise ProxyRefused(exchange.MANY_HEADERS)
            self._head = AnswerHead(event.status_code, list(event.headers))
            return None if event.has_body else SocketRefused(self._head, b"")
        if isinstance(event, events.RejectData) and self._head is not None:
            self._body += bytes(event.data)
            if event.body_finished or len(self._body) > REFUSAL_BYTES:
                return SocketRefused(self._head, self._body[:REFUSAL_BYTES])
            return None
        raise ProxyRefused(NO_ANSWER if isinstance(event, events.CloseConnection) else NO_HTTP)

    async def next_said(self, sending: asyncio.Future[None]) -> str | bytes | SocketClosed:
        """Return the next message, or how it ended. Raise the errors of `sending`."""
        try:
            while (said := await self._said(await self._next_event(sending))) is None:
                pass
        except (RemoteProtocolError, ConnectionBroken):
            return SocketClosed(FAILED, BROKEN)
        except TimeoutError:
            return SocketClosed(FAILED, STUCK)
        except TooMuchWaits:
            return SocketClosed(TRY_LATER, MUCH)
        return said

    def note_taken(self, message: Said) -> None:
        """Note that the client's connection has a message, and so has sent the one before."""
        taken, self._taken = self._taken, _size(message)
        self.waiting.remove(taken)

    async def _said(self, event: events.Event) -> str | bytes | SocketClosed | None:
        """Return what an event completes, if anything. Raise TimeoutError for a server that takes nothing."""
        if isinstance(event, events.CloseConnection):
            await self._respond(event)
            return _closed(event)
        if isinstance(event, events.Ping):
            await self._respond(event)
        elif isinstance(event, events.TextMessage | events.BytesMessage):
            # Joined at once: a list of the smallest parts, or of empty ones, would take any memory.
            part = event.data.encode() if isinstance(event, events.TextMessage) else event.data
            self.waiting.add(len(part))
            self._message += part
            if len(self._message) > MAX_MESSAGE:
                return SocketClosed(TOO_LARGE, f"A message has at most {MAX_MESSAGE} bytes.")
            if event.message_finished:
                whole, self._message = self._message, bytearray()
                return whole.decode() if isinstance(event, events.TextMessage) else bytes(whole)
        return None

    async def _respond(self, event: events.Ping | events.CloseConnection) -> None:
        """Answer, but not beside a message that the server does not take."""
        with suppress(LocalProtocolError):  # the client has closed, or the server has answered a close
            if not self._writing.locked():
                await self.write(event.response())

    async def _next_event(self, sending: asyncio.Future[None] | None) -> events.Event:
        """Return the next event. Raise RemoteProtocolError, ConnectionBroken, and the errors of `sending`; TimeoutError
        for a server that does not answer a close in time.
        """
        while True:
            if (event := next(self._events, None)) is not None:
                self._parsed += 1
                if self._parsed % EVENTS_AT_ONCE == 0:
                    await self._rest()
                return event
            await self._rest()
            block = await self._next_block(sending)
            async with self._connection.charged():
                self._parser.receive_data(block or None)
            self._begun = time.thread_time()
            self._events = self._parser.events()

    async def _rest(self) -> None:
        spent, self._begun = time.thread_time() - self._begun, time.thread_time()
        await self._connection.rest(max(spent, 0.0))

    async def _next_block(self, sending: asyncio.Future[None] | None) -> bytes:
        reading = asyncio.ensure_future(self._connection.read())
        try:
            if sending is not None:
                waited: list[asyncio.Future[Any]] = [reading, sending]
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    await self._wait_last(reading, sending)
            return await reading
        finally:
            reading.cancel()
            self._begun = time.thread_time()

    async def _wait_last(self, reading: asyncio.Future[bytes], sending: asyncio.Future[None]) -> None:
        """Wait for bytes after the client's close, whatever else the server says before its own."""
        if not reading.done():
            sending.result()
        now = time.monotonic()
        self._ends_at = self._ends_at or now + CLOSE_SECONDS
        async with asyncio.timeout(self._ends_at - now):
            await asyncio.wait([reading])


def _size(message: Said) -> int:
    return len(message.encode() if isinstance(message, str) else message) if isinstance(message, str | bytes) else 0


def _sent_event(message: Message) -> events.Event:
    if isinstance(message, SocketClosed):
        return _close(message)
    return events.TextMessage(data=message) if isinstance(message, str) else events.BytesMessage(data=message)


def _close(message: SocketClosed) -> events.CloseConnection:
    code = message.code if 1000 <= message.code < 5000 and message.code not in {NO_CODE, *UNSENT} else 1001
    return events.CloseConnection(code=code, reason=message.reason or None)


def _closed(event: events.CloseConnection) -> SocketClosed:
    if event.code in UNSENT:
        return SocketClosed(FAILED, BROKEN)
    return SocketClosed(int(event.code), event.reason or "")
