"""Connections to servers on a guest's loopback, through its hold."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from .errors import TerminalLimit
from .frames import Answer, Fields, GuestGarbage, Request, number
from .link import HoldLink, LinkOpener, Receive

# Bytes that the guest may send before they are read, and that its servers may have not taken.
WINDOW = 128 * 1024
# A guest has as many, as its honest hold has; a hostile one could have any number.
MAX_CONNECTIONS = 256
# Of those, how many wait for their next use, and for how long: less than servers wait for their next request.
MAX_KEPT = 32
KEPT_SECONDS = 4.0
_SENT_AT_ONCE = 32 * 1024
_MAX_ID = 1 << 32
_MAPPED = bytes(10) + b"\xff\xff"
_COMPLETE, _BROKEN = 0, 1


class ConnectionBroken(Exception):
    """The server, or the guest's kernel, broke the connection off."""


class HeldConnection:
    """One connection. Belongs to the event loop of its client; one reader and one writer at a time.

    It does not outlive the link to the guest: `read` and `write` raise GuestUnreachable once that is lost.
    """

    def __init__(self, id: int) -> None:
        self.id = id
        self._link: HoldLink | None = None
        self._pieces: deque[bytes] = deque()
        self._read = self._received = 0
        self._granted_to_guest = WINDOW
        self._sent = self._granted = 0
        self._ending: int | None = None
        self._changed = asyncio.Event()

    @property
    def link(self) -> HoldLink:
        """The link on which the guest has accepted it."""
        assert self._link is not None  # noqa: S101  # its opener returns it afterwards
        return self._link

    async def read(self) -> bytes:
        """Return the next bytes, b"" after the last. Raise ConnectionBroken, GuestUnreachable."""
        while not self._pieces:
            if self._ending == _BROKEN:
                raise ConnectionBroken("The server broke the connection off.")
            if self._ending == _COMPLETE:
                return b""
            await self._wait_change()
        piece = self._pieces.popleft()
        self._read += len(piece)
        # A quarter of the window at a time: small pieces are not answered one by one.
        if self._read + WINDOW - self._granted_to_guest >= WINDOW // 4:
            self._granted_to_guest = self._read + WINDOW
            self.link.post(Request.CONNECT_CREDIT, number(self.id, 4), number(self._granted_to_guest, 8))
        return piece

    async def write(self, data: bytes) -> None:
        """Send bytes, as the server takes them. Raise GuestUnreachable.

        A server that takes no more is noticed by what can be read: bytes for it are dropped.
        """
        view = memoryview(data)
        while view:
            while (room := self._granted - self._sent) <= 0:
                await self._wait_change()
            part = view[: min(room, _SENT_AT_ONCE)]
            self._sent += len(part)
            await self.link.send(Request.CONNECT_SEND, number(self.id, 4), bytes(part))
            view = view[len(part) :]

    async def rest(self, seconds: float) -> None:
        """Charge the guest for CPU time that its bytes have cost."""
        await self.link.rest(seconds)

    @asynccontextmanager
    async def charged(self) -> AsyncIterator[None]:
        """Charge the guest for CPU time that its bytes cost within the context, which awaits nothing, and wait as long
        as it has to; one connection of a guest after another.
        """
        async with self.link.turn:
            begun = time.thread_time()
            try:
                yield
            finally:
                await self.rest(time.thread_time() - begun)

    @property
    def is_at_rest(self) -> bool:
        """Return whether it is open, and the server has sent nothing that was not read."""
        alive = self._link is not None and not self._link.lost.done()
        return alive and self._ending is None and not self._pieces

    # For its opener

    def begin(self, link: HoldLink, fields: Fields) -> None:
        """Begin on the link on which the guest has accepted it. Raise GuestGarbage."""
        self._grant(fields.number(8))
        fields.require_end()
        self._link = link

    def receive(self, kind: int, fields: Fields) -> None:
        """Take what the guest says about it. Raise GuestGarbage for what it may not say."""
        if kind == Answer.CONNECT_GRANT:
            self._grant(fields.number(8))
            fields.require_end()
        elif kind == Answer.CONNECT_DATA:
            self._take(fields.rest())
        else:
            ending = fields.number(1)
            fields.require_end()
            if self._ending is not None or ending not in (_COMPLETE, _BROKEN):
                raise GuestGarbage
            self._ending = ending
        self._changed.set()

    def close(self) -> None:
        """End it. Idempotent."""
        if self._link is not None:
            self._link.post(Request.CONNECT_CLOSE, number(self.id, 4))
            self._link = None

    def _take(self, data: bytes) -> None:
        self._received += len(data)
        if not data or self._ending is not None or self._received > self._granted_to_guest:
            raise GuestGarbage
        # The smallest pieces would take a hundred times their bytes.
        if self._pieces and len(self._pieces[-1]) + len(data) <= _SENT_AT_ONCE:
            data = self._pieces.pop() + data
        self._pieces.append(data)

    def _grant(self, granted: int) -> None:
        if not self._granted <= granted <= self._sent + WINDOW:
            raise GuestGarbage
        self._granted = granted

    async def _wait_change(self) -> None:
        self.link.require_alive()
        self._changed.clear()
        changed = asyncio.ensure_future(self._changed.wait())
        waited: list[asyncio.Future[Any]] = [changed, self.link.lost]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()


class HeldConnections:
    """The connections of a guest that its client has open."""

    def __init__(self, client: LinkOpener) -> None:
        self._client = client
        self._open: dict[int, HeldConnection] = {}
        self._last = 0
        # Those that wait for their next use: for which place, and what ends them.
        self._kept: dict[HeldConnection, tuple[Hashable, asyncio.TimerHandle]] = {}

    async def open(self, address: str, port: int) -> HeldConnection:
        """Connect to a port of an address of the loopback, however long that takes; the opener must `close` it here.

        Raise NotConnected, TerminalLimit (too many), RequestUnknown or HoldUnsupported (the machine's kit connects to
        nothing), GuestUnreachable.
        """
        link = await self._client.answering_link()
        if len(self._open) >= MAX_CONNECTIONS and self._kept:
            self.close(next(iter(self._kept)))
        if len(self._open) >= MAX_CONNECTIONS:
            raise TerminalLimit("The machine has as many proxied connections as it may.")
        self._last = self._last % (_MAX_ID - 1) + 1
        connection = self._open[self._last] = HeldConnection(self._last)
        head = number(connection.id, 4), number(WINDOW, 4), number(port, 2)
        try:
            await link.request(
                Request.CONNECT, *head, _address_bytes(address), read=lambda fields: connection.begin(link, fields)
            )
        except BaseException:
            # A guest that is still connecting has it, and one that has just connected.
            self._open.pop(connection.id, None)
            link.post(Request.CONNECT_CLOSE, number(connection.id, 4))
            raise
        return connection

    def keep(self, connection: HeldConnection, place: Hashable) -> None:
        """Keep a connection for KEPT_SECONDS, for whoever asks for `place`. One that is not at rest is closed."""
        if not connection.is_at_rest:
            self.close(connection)
            return
        if len(self._kept) >= MAX_KEPT:
            self.close(next(iter(self._kept)))
        timer = asyncio.get_running_loop().call_later(KEPT_SECONDS, self.close, connection)
        self._kept[connection] = place, timer

    async def take_kept(self, place: Hashable) -> HeldConnection | None:
        """Return a connection that was kept for the place and is still at rest. Its server may be about to close it.

        Raise GuestUnreachable, HoldUnsupported.
        """
        if all(kept_for != place for kept_for, _ in self._kept.values()):
            return None
        await self._client.answering_link()  # one that does not work any more is known to be lost from now on
        for connection in [one for one, (kept_for, _) in self._kept.items() if kept_for == place]:
            if connection.is_at_rest:
                self._kept.pop(connection)[1].cancel()
                return connection
            self.close(connection)
        return None

    def close(self, connection: HeldConnection) -> None:
        """End a connection, also one that is kept. Idempotent."""
        if (kept := self._kept.pop(connection, None)) is not None:
            kept[1].cancel()
        self._open.pop(connection.id, None)
        connection.close()

    def receiver(self, otherwise: Receive) -> Receive:
        """Return a receiver of what a guest sends about connections; `otherwise` takes the rest."""

        def receive(link: HoldLink, kind: int, about: int, fields: Fields) -> None:
            if kind not in (Answer.CONNECT_DATA, Answer.CONNECT_ENDED, Answer.CONNECT_GRANT):
                otherwise(link, kind, about, fields)
            elif (connection := self._open.get(about)) is not None:
                if connection._link is not link:
                    raise GuestGarbage  # before it was accepted
                connection.receive(kind, fields)
            elif not 1 <= about <= self._last:
                raise GuestGarbage
            # else it was under way when the connection was closed

        return receive


def _address_bytes(address: str) -> bytes:
    """Return an address as the guest takes it: those of IPv4 are mapped."""
    found: IPv4Address | IPv6Address = ip_address(address)
    return found.packed if isinstance(found, IPv6Address) else _MAPPED + found.packed
