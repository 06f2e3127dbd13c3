"""One request to a server in a guest and its answer, by h11. For the event loop of the guest pool.

The server is hostile. h11 takes an answer of one reading only, and a head of at most HEAD_BYTES; bytes are kept up to
the windows of the connection; CPU time that the smallest pieces take is charged to the guest.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import h11

from common.errors import BodyEndedEarly, ValidationError
from vmbackend.errors import GuestUnreachable
from vmbackend.guest.hold.connections import ConnectionBroken, HeldConnection, HeldConnections
from vmbackend.guest.hold.errors import NotConnected
from vmbackend.guest.session import GuestSession
from vmbackend.guest.sources import closing_source
from workspaces.runtime.proxy.errors import ProxyBroken, ProxyRefused, ProxyTimeout, connection_errors
from workspaces.runtime.proxy.targets import Headers, LoopbackPort

HEAD_BYTES = 64 * 1024
# Until the head of the answer, since the server last took bytes of the request.
HEAD_SECONDS = 60.0
CONNECT_SECONDS = 60.0
LOOK_SECONDS = 1.0
# Of a request, at a time: as many as a server has to take before it gets more.
TAKE_BYTES = 32 * 1024
# Events of the parser in one turn of the loop: some tenths of a millisecond.
EVENTS_AT_ONCE = 64
MAX_INFORMATION = 16
MAX_STATUS = 599
# Each costs this process more than bytes do, and there are far fewer in any honest answer.
MAX_HEADERS = 256
SAFE_METHODS = frozenset({b"GET", b"HEAD", b"OPTIONS"})
NO_ANSWER = "The server in the machine closed the connection before it answered."
NO_HTTP = "The server in the machine does not answer by HTTP/1.1, or its answer could be read in two ways."
MANY_HEADERS = f"The server in the machine answers with more than {MAX_HEADERS} headers."
CUT_OFF = "The server in the machine broke its answer off."


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The beginning of an answer."""

    status: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class AnswerTrailers:
    """Headers after the body."""

    headers: Headers


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """A request as the server gets it; `headers` without `Host`."""

    method: bytes
    path: bytes
    headers: Headers
    target: LoopbackPort

    @property
    def has_body(self) -> bool:
        """Return whether a body follows the head."""
        return any(name.lower() in {b"content-length", b"transfer-encoding"} for name, _ in self.headers)

    @property
    def may_be_repeated(self) -> bool:
        """Return whether it asks for nothing but an answer."""
        return self.method in SAFE_METHODS and not self.has_body

    def encode(self, connection: h11.Connection) -> bytes:
        """Return the bytes of its head. Raise ValidationError."""
        headers = [(b"Host", self.target.authority), *self.headers]
        try:
            sent = connection.send(h11.Request(method=self.method, target=self.path, headers=headers))
        except h11.LocalProtocolError as exc:
            raise ValidationError(f"The request cannot be passed on: {exc}.") from exc
        return sent or b""


AnswerPart = AnswerHead | AnswerTrailers | bytes


@asynccontextmanager
async def opened(session: GuestSession, target: LoopbackPort) -> AsyncIterator[HeldConnection]:
    """Open a connection to the target within the context. Raise the errors of `connection_errors`, ProxyTimeout."""
    connections = (await session.open_held()).connections
    connection = await _opened(connections, target)
    try:
        yield connection
    finally:
        connections.close(connection)


async def _opened(connections: HeldConnections, target: LoopbackPort) -> HeldConnection:
    try:
        with connection_errors():
            async with asyncio.timeout(CONNECT_SECONDS):
                return await _connected(connections, target.addresses, target.port)
    except TimeoutError as exc:
        raise ProxyTimeout from exc


async def _connected(connections: HeldConnections, addresses: Sequence[str], port: int) -> HeldConnection:
    """Return a connection to the first address at which something listens."""
    for address in addresses[:-1]:
        with suppress(NotConnected):
            return await connections.open(address, port)
    return await connections.open(addresses[-1], port)


async def exchange(
    session: GuestSession, request: ProxiedRequest, body: AsyncIterator[bytes]
) -> AsyncIterator[AnswerPart]:
    """Yield the head of the answer, its bytes, and its trailers if it has any, while the request is sent.

    Raise ProxyRefused, ProxyTimeout, ValidationError before the head, what `opened` and `body` raise, and ProxyBroken
    after the head for an answer that ends early.
    """
    connections = (await session.open_held()).connections
    kept = await connections.take_kept(request.target) if request.may_be_repeated else None
    while True:
        connection = kept or await _opened(connections, request.target)
        each = _Exchange(connection)
        try:
            async with closing_source(_exchanged(each, request, body)) as parts:
                async for part in parts:
                    yield part
            return
        except (ProxyRefused, GuestUnreachable):
            # Its server, or its guest, closed it while the request was on its way.
            if connection is not kept or each.has_bytes:
                raise
            kept = None
        finally:
            if each.is_over:
                connections.keep(connection, request.target)
            else:
                connections.close(connection)


async def _exchanged(each: _Exchange, request: ProxiedRequest, body: AsyncIterator[bytes]) -> AsyncIterator[AnswerPart]:
    head = request.encode(each.parser)
    sending = asyncio.ensure_future(each.send(head, body if request.has_body else None))
    try:
        async with closing_source(each.answer(sending)) as parts:
            async for part in parts:
                yield part
    finally:
        sending.cancel()
        await asyncio.wait([sending])
        if not sending.cancelled():
            sending.exception()  # seen, though the answer came first


class _Exchange:
    """The state of one exchange."""

    def __init__(self, connection: HeldConnection) -> None:
        self.parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        self._connection = connection
        self._moved_at = time.monotonic()
        self._waits_for_client = self._has_sent = False
        self._has_head = self.has_bytes = False
        self._information = 0
        self._trailers: Headers = []

    @property
    def is_over(self) -> bool:
        """Return whether both sides have said all, and the connection may be used again."""
        # The parser has sent what may still wait for the server to take it.
        is_done = self._has_sent and self.parser.our_state is h11.DONE and self.parser.their_state is h11.DONE
        return is_done and not self.parser.trailing_data[0]

    async def send(self, head: bytes, body: AsyncIterator[bytes] | None) -> None:
        """Send the request. A server that takes no more of it may still answer."""
        await self._connection.write(head)
        if body is not None:
            await self._send_body(body)
        await self._write(h11.EndOfMessage())
        self._has_sent = True

    async def _send_body(self, body: AsyncIterator[bytes]) -> None:
        self._waits_for_client = True
        async for chunk in body:
            self._waits_for_client = False
            await self._write(h11.Data(data=chunk))
            self._waits_for_client = True
        self._waits_for_client = False

    async def _write(self, event: h11.Event) -> None:
        self._moved_at = time.monotonic()
        # After an answer that makes the rest of the request useless the parser sends none.
        if self.parser.our_state is not h11.SEND_BODY:
            return
        try:
            data = self.parser.send(event) or b""
        except h11.LocalProtocolError as exc:
            raise BodyEndedEarly from exc
        for at in range(0, len(data), TAKE_BYTES):
            await self._connection.write(data[at : at + TAKE_BYTES])
            self._moved_at = time.monotonic()

    async def answer(self, sending: asyncio.Future[None]) -> AsyncIterator[AnswerPart]:
        """Yield the answer. Raise what `exchange` raises, also the errors of `sending`."""
        while True:
            async with self._connection.charged():
                head, data, is_over, is_hungry = self._parse()
            if head is not None:
                yield head
            if data:
                yield data
            if is_over:
                if self._trailers:
                    yield AnswerTrailers(self._trailers)
                return
            if is_hungry:
                self._receive(await self._next_block(sending))

    def _parse(self) -> tuple[AnswerHead | None, bytes, bool, bool]:
        """Return a head, bytes, whether the answer is complete, and whether more bytes are wanted."""
        head, data = None, bytearray()
        for _ in range(EVENTS_AT_ONCE):
            event = self._next_event()
            if isinstance(event, h11.Response):
                head = self._begin(event)
            elif isinstance(event, h11.Data):
                data += event.data
            elif isinstance(event, h11.EndOfMessage):
                if len(event.headers) > MAX_HEADERS:
                    raise ProxyBroken(MANY_HEADERS)
                self._trailers = event.headers.raw_items()
                return head, bytes(data), True, False
            elif event is h11.NEED_DATA:
                return head, bytes(data), False, True
            else:
                self._count_information()
        return head, bytes(data), False, False

    def _begin(self, event: h11.Response) -> AnswerHead:
        if event.status_code > MAX_STATUS:
            raise ProxyRefused(NO_HTTP)
        if len(event.headers) > MAX_HEADERS:
            raise ProxyRefused(MANY_HEADERS)
        self._has_head = True
        return AnswerHead(event.status_code, event.headers.raw_items())

    def _count_information(self) -> None:
        """Answers such as 100 are not passed on, and not read for ever."""
        self._information += 1
        if self._information > MAX_INFORMATION:
            raise ProxyRefused(NO_HTTP)

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self.parser.next_event()
        except h11.RemoteProtocolError as exc:
            if self._has_head:
                raise ProxyBroken(CUT_OFF) from exc
            raise ProxyRefused(NO_HTTP if self.has_bytes else NO_ANSWER) from exc

    def _receive(self, block: bytes) -> None:
        self.has_bytes = self.has_bytes or bool(block)
        self.parser.receive_data(block)

    async def _next_block(self, sending: asyncio.Future[None]) -> bytes:
        """Return the next bytes of the server, b"" at their end. Raise ProxyTimeout, and the errors of `sending`."""
        reading = asyncio.ensure_future(self._connection.read())
        if self._has_head:
            self._moved_at = time.monotonic()  # it has said something, or its client did not want to hear it
        try:
            while not reading.done():
                waited: list[asyncio.Future[Any]] = [reading] if sending.done() else [reading, sending]
                await asyncio.wait(waited, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if sending.done() and not reading.done():
                    sending.result()
                if not reading.done():
                    self._require_patience(is_sending=not sending.done())
            return reading.result()
        except ConnectionBroken as exc:
            raise ProxyBroken(CUT_OFF) if self._has_head else ProxyRefused(NO_ANSWER) from exc
        finally:
            reading.cancel()

    def _require_patience(self, *, is_sending: bool) -> None:
        """Raise ProxyTimeout, ProxyBroken for a server that says nothing and takes nothing: its client is not read
        meanwhile, and has perhaps gone.
        """
        if self._waits_for_client or (self._has_head and not is_sending):
            return
        if time.monotonic() - self._moved_at > HEAD_SECONDS:
            raise ProxyBroken(CUT_OFF) if self._has_head else ProxyTimeout
