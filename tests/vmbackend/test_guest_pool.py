"""The pool of guest sessions, with sessions that only the test has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from vmbackend.guest.pool import GuestPool
from vmbackend.guest.session import GuestAddress

ADDRESS = GuestAddress("ws_1", "192.0.2.1", 22, "")


class SlowSession:
    """Reads as a file server's do: a request that is cancelled takes some turns of the loop to end."""

    def __init__(self) -> None:
        self.waits = False
        self.ended = 0

    async def read(self, path: str) -> AsyncIterator[bytes]:
        try:
            yield b"first"
            self.waits = True
            await asyncio.sleep(60)
            yield b"never"
        finally:
            await asyncio.sleep(0.05)
            self.ended += 1

    async def close(self) -> None:
        pass


@pytest.fixture
def session() -> SlowSession:
    return SlowSession()


@pytest.fixture
def pool(session: SlowSession) -> Iterator[GuestPool]:
    made = GuestPool(lambda address: session)  # type: ignore[arg-type, return-value]
    yield made
    made.close()


def test_a_reader_that_is_cancelled_within_a_chunk_ends_without_an_error(pool: GuestPool, session: SlowSession) -> None:
    reported: list[dict[str, Any]] = []

    async def reader() -> None:
        async with aclosing(pool.astream(ADDRESS, lambda one: one.read("/"))) as chunks:  # type: ignore[attr-defined]
            async for _ in chunks:
                pass

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        task = asyncio.ensure_future(reader())
        async with asyncio.timeout(10):
            while not session.waits:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(work())
    assert session.ended == 1
    assert reported == []
    assert all(lease.users == 0 for lease in pool._start().sessions._leases.values())


def test_a_caller_that_waits_for_a_chunk_may_leave(pool: GuestPool, session: SlowSession) -> None:
    class Left(Exception):
        pass

    def leave() -> None:
        raise Left

    chunks = pool.stream(ADDRESS, lambda one: one.read("/"), while_waiting=leave)  # type: ignore[attr-defined]
    assert next(chunks) == b"first"
    with pytest.raises(Left):
        next(chunks)
    assert session.ended == 1
