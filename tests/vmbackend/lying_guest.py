"""A guest that sends anything, in place of the far end of the hold's connection."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

from vmbackend.errors import GuestUnreachable
from vmbackend.guest.hold.client import HoldClient, HoldSettings
from vmbackend.guest.hold.frames import Answer, Request, number

WELCOME = struct.pack(">IBI", 23, Answer.WELCOME, 0) + b"HOLD\0\1" + b"instance" + number(256 * 1024, 4)
Script = Callable[["LyingGuest"], Awaitable[None]]


class LyingGuest:
    """The far end of a transport, in the same loop."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._to_client: asyncio.Queue[bytes] = asyncio.Queue()
        self._to_guest = asyncio.StreamReader()
        self.closed = False
        self.charged = 0.0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        await self._script(self)

    async def read(self, limit: int) -> bytes:
        return b"" if self.closed else await self._to_client.get()

    def write(self, data: bytes) -> None:
        if self.closed:
            raise GuestUnreachable("closed")
        self._to_guest.feed_data(data)

    async def drain(self) -> None:
        pass

    def spend_time(self, seconds: float) -> float:
        self.charged += seconds
        return 0.0

    async def explain_end(self) -> Exception:
        return GuestUnreachable("ended")

    async def close(self) -> None:
        self.closed = True
        self._task.cancel()
        self._to_client.put_nowait(b"")

    def say(self, data: bytes) -> None:
        self._to_client.put_nowait(data)

    def answer(self, kind: int, about: int, *parts: bytes) -> None:
        body = b"".join(parts)
        self.say(struct.pack(">IBI", len(body) + 5, kind, about) + body)

    async def hear(self) -> tuple[int, int, bytes]:
        length, kind, about = struct.unpack(">IBI", await self._to_guest.readexactly(9))
        return kind, about, await self._to_guest.readexactly(length - 5)

    async def welcome(self) -> None:
        assert (await self.hear())[0] == Request.HELLO
        self.say(WELCOME)


def with_guests(*scripts: Script) -> HoldClient:
    """A client whose connections lead to these guests, one after another."""
    pending = list(scripts)

    async def open_transport() -> LyingGuest:
        if not pending:
            raise GuestUnreachable("no more")
        return LyingGuest(pending.pop(0))

    return HoldClient(open_transport, HoldSettings(timeout=20.0))


def run(work: Awaitable[None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))  # type: ignore[arg-type]
