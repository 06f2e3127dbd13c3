"""Reading a channel in a test: the frames that one client receives."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from common.sse.frames import EventId, parse_id
from common.sse.leaders import Source
from common.sse.replay import Channel, ReplayBuffer
from common.sse.runtime import Reader, RevocationCheck, Runtime, shared_runtime


@dataclass(frozen=True)
class Frame:
    """One frame of the body: an event, or a comment line (`kind` is then empty)."""

    kind: str
    id: EventId | None
    data: Any
    text: str


def parse(text: str) -> Frame:
    fields = dict(line.split(": ", 1) for line in text.split("\n") if not line.startswith(":"))
    data = json.loads(fields["data"]) if "data" in fields else None
    return Frame(fields.get("event", ""), parse_id(fields.get("id")), data, text)


def fresh() -> Channel:
    return Channel(f"test:{os.urandom(6).hex()}", max_events=50, max_bytes=64 * 1024)


async def no_source(replay: ReplayBuffer) -> None:
    await asyncio.Event().wait()


def none_revoked(grants: Sequence[Any]) -> dict[Any, str]:
    return {}


class Client:
    """A client of one stream that reads all the time. `next` skips what is no event."""

    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body
        self._frames: asyncio.Queue[str | None] = asyncio.Queue()

    async def read(self) -> None:
        async for chunk in self._body:
            for text in chunk.decode().removesuffix("\n\n").split("\n\n"):
                self._frames.put_nowait(text)
        self._frames.put_nowait(None)

    async def frame(self, seconds: float = 120) -> Frame | None:
        """The next frame of any kind; None at the end."""
        async with asyncio.timeout(seconds):
            text = await self._frames.get()
        return parse(text) if text is not None else None

    async def next(self, seconds: float = 120) -> Frame:
        while True:
            found = await self.frame(seconds)
            assert found is not None, "the stream has ended"
            if found.kind:
                return found

    async def take(self, count: int) -> list[Frame]:
        return [await self.next() for _ in range(count)]

    async def nothing(self, seconds: float = 0.3) -> bool:
        """Whether no event comes for a while."""
        try:
            await self.next(seconds)
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def body_of(reader: Reader) -> AsyncIterator[tuple[AsyncIterator[bytes], Runtime]]:
    """The chunks of a stream, none of them read yet, and what its streams share."""
    async with shared_runtime() as runtime, aclosing(runtime.read(reader)) as body:  # type: ignore[type-var]
        yield body, runtime


@asynccontextmanager
async def reading(
    channel: Channel,
    source: Source = no_source,
    *,
    after: EventId | None = None,
    tail: int = 1000,
    grant: Any = "t",
    revoked: RevocationCheck = none_revoked,
) -> AsyncIterator[tuple[Client, Runtime]]:
    """A client of the channel that begins with the whole replay buffer, and what its streams share."""
    async with body_of(Reader(channel, source, grant, revoked, after, tail)) as (body, runtime):
        client = Client(body)
        task = asyncio.ensure_future(client.read())
        try:
            first = await client.frame()
            assert first is not None
            assert first.text == "retry: 2000"
            yield client, runtime
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=10)
            assert task.done(), "a cancellation was lost"


ATTEMPTS = 10


class Writer:
    """Writes a channel from a test, as its one source."""

    def __init__(self, replay: ReplayBuffer, channel: Channel) -> None:
        self._replay = replay
        self._channel = channel
        self.position = ""

    async def write(self, *values: Any) -> None:
        """One step. On a busy host Redis may answer too late, with or without having done it."""
        following = str(int(self.position or 0) + 1)
        events = [("message", json.dumps(value)) for value in values]
        for attempt in range(ATTEMPTS):
            with suppress(TimeoutError):
                if not attempt or await self._replay.position(self._channel) != following:
                    await self._replay.append(self._channel, events, expected=self.position, position=following)
                self.position = following
                return
        raise TimeoutError("Redis does not answer")


async def until(true: Callable[[], Any], seconds: float = 120) -> None:
    async with asyncio.timeout(seconds):
        while not (found := true()) or (isinstance(found, Awaitable) and not await found):
            await asyncio.sleep(0.01)
