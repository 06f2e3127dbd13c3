"""Channel leaders: one process writes a channel while it has readers, and another one takes over when it fails."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from redis.asyncio.lock import Lock

from common.sse import leaders
from common.sse.replay import Channel, ReplayBuffer
from common.sse.runtime import Reader, Runtime
from tests.common.sse.app import counting
from tests.common.sse.reading import Client, fresh, none_revoked, reading, until


class Counted:
    """A counting source that records how often it runs now, and how often it ran."""

    def __init__(self, channel: Channel) -> None:
        self.now = self.ever = self.most = 0
        self.channel = channel

    async def __call__(self, replay: ReplayBuffer) -> None:
        self.now, self.ever = self.now + 1, self.ever + 1
        self.most = max(self.most, self.now)
        try:
            await counting(self.channel)(replay)
        finally:
            self.now -= 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(leaders, "RETRY_SECONDS", 0.1)


def test_a_source_runs_once_for_all_readers_and_ends_with_the_last() -> None:
    async def run() -> None:
        channel = fresh()
        source = Counted(channel)
        async with reading(channel, source) as (one, runtime):
            async with reading(channel, source) as (two, _):
                await one.take(3)
                await two.take(3)
            await one.take(3)
            assert (source.now, source.ever) == (1, 1)
            async with reading(fresh(), Counted(fresh())):
                pass
            assert list(runtime.leaders.readers) == [channel]
        assert (source.now, source.ever) == (0, 1)

    asyncio.run(run())


def test_another_process_waits_and_continues_where_the_first_stopped() -> None:
    async def run() -> None:
        channel = fresh()
        source = Counted(channel)
        runtimes = [Runtime(), Runtime()]
        readers = [Reader(channel, source, "t", none_revoked, tail=1000)] * 2
        bodies = [runtime.read(reader) for runtime, reader in zip(runtimes, readers, strict=True)]
        clients = [Client(body) for body in bodies]
        tasks = [asyncio.ensure_future(client.read()) for client in clients]
        for client in clients:
            await client.take(5)
        await asyncio.sleep(1.5)
        assert (source.ever, source.most) == (1, 1)
        leader = next(index for index, runtime in enumerate(runtimes) if runs(runtime, source))
        tasks[leader].cancel()
        await asyncio.wait([tasks[leader]])
        await until(lambda: source.ever == 2)
        other = clients[1 - leader]
        got = [found.data["n"] for found in await other.take(40)]
        assert got == list(range(6, 46))
        assert source.most == 1
        tasks[1 - leader].cancel()
        await asyncio.wait(tasks)
        for runtime in runtimes:
            await runtime.close()

    asyncio.run(run())


def runs(runtime: Runtime, source: Counted) -> bool:
    return bool(runtime.leaders.led)


def test_a_source_that_fails_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    failures = 3

    async def run() -> None:
        channel = fresh()

        async def source(replay: ReplayBuffer) -> None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise ZeroDivisionError("a bug")
            await counting(channel)(replay)

        async with reading(channel, source) as (client, _):
            assert [found.data["n"] for found in await client.take(3)] == [1, 2, 3]

    asyncio.run(run())
    assert caplog.text.count("ZeroDivisionError: a bug") == 3


def test_a_source_whose_lease_was_taken_from_it_stops() -> None:
    async def run() -> None:
        channel = fresh()
        source = Counted(channel)
        async with reading(channel, source) as (client, runtime):
            await client.take(3)
            await runtime.client.set(f"{channel.keys[0]}:lease", "another process", px=1500)
            await until(lambda: source.now == 0)
            await until(lambda: source.now == 1)
            got = [found.data["n"] for found in await client.take(30)]
            assert got == list(range(4, 34))

    asyncio.run(run())


def test_a_reader_that_leaves_during_the_lease_request_leaves_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        channel = fresh()
        asked = asyncio.Event()
        acquire = Lock.acquire

        async def slow(self: Lock, **options: Any) -> bool:
            got = await acquire(self, **options)
            asked.set()
            await asyncio.sleep(0.2)  # Redis has given it; the answer is on its way
            return got

        monkeypatch.setattr(Lock, "acquire", slow)
        runtime = Runtime()
        runtime.leaders.add_reader(channel, Counted(channel))
        await asked.wait()
        assert await runtime.client.exists(f"{channel.keys[0]}:lease")
        runtime.leaders.remove_reader(channel)
        await runtime.leaders.close()
        assert not await runtime.client.exists(f"{channel.keys[0]}:lease")
        await runtime.close()

    asyncio.run(run())


def test_nothing_is_left_of_a_stream_that_is_cancelled_at_any_moment() -> None:
    async def run() -> None:
        for number in range(60):
            channel = fresh()
            source = Counted(channel)
            runtime = Runtime()
            body = runtime.read(Reader(channel, source, "t", none_revoked, tail=10))
            task = asyncio.ensure_future(Client(body).read())
            await asyncio.sleep(number * 0.002)
            task.cancel()
            await asyncio.wait([task], timeout=5)
            assert task.done()
            async with aclosing(body):  # type: ignore[type-var]
                pass
            assert not runtime.readers
            assert not runtime.hub.listeners_by_channel
            await runtime.close()
            assert source.now == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
