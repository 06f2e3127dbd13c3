"""Redis that is unavailable, loses its data, or loses published messages: streams stay open and recover."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import LazySettings
from django_eventstream.views import ListenerManager

from common.sse import leaders
from common.sse.replay import Channel
from tests.common.sse.app import counting
from tests.common.sse.reading import Writer, fresh, reading, until
from tests.environment import STATE


class OwnRedis:
    """A Redis for this test alone, without persistence."""

    def __init__(self) -> None:
        self.socket = STATE / f"redis-{os.urandom(3).hex()}.sock"
        self.start()

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        command = ["redis-server", "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--dir", str(STATE)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    async def restart(self) -> None:
        self.start()
        await until(lambda: Path(self.socket).exists())


@pytest.fixture
def own(settings: LazySettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnRedis]:
    monkeypatch.setattr(leaders, "RETRY_SECONDS", 0.1)
    redis = OwnRedis()
    settings.REDIS_URL = f"unix://{redis.socket}"
    yield redis
    redis.process.send_signal(signal.SIGCONT)
    redis.kill()


def test_streams_outlive_redis_and_go_on_with_a_gap_when_it_is_back_empty(own: OwnRedis) -> None:
    async def run() -> None:
        await until(own.socket.exists)
        channel = fresh()
        async with reading(channel, counting(channel)) as (client, _):
            await client.take(3)
            own.kill()
            await asyncio.sleep(2)
            await own.restart()
            frames = []
            while not frames or frames[-1].kind != "gap":
                frames.append(await client.next(15))
            assert [found.data["n"] for found in await client.take(5)] == [1, 2, 3, 4, 5]

    asyncio.run(run())


def test_a_redis_that_hangs_for_a_while_costs_no_event(own: OwnRedis) -> None:
    async def run() -> None:
        await until(own.socket.exists)
        channel = fresh()
        async with reading(channel, counting(channel)) as (client, _):
            await client.take(3)
            own.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(7)
            own.process.send_signal(signal.SIGCONT)
            assert [found.data["n"] for found in await client.take(20)] == list(range(4, 24))

    asyncio.run(run())


def test_events_that_redis_did_not_publish_are_read_from_the_replay_buffer(own: OwnRedis) -> None:
    async def run() -> None:
        await until(own.socket.exists)
        channel = Channel(fresh().name)
        async with reading(channel) as (client, runtime):
            writer = Writer(runtime.replay, channel)
            for number in range(1, 61):
                await writer.write(number)
                if number % 7 == 0:
                    await runtime.client.client_kill_filter(_type="pubsub")
            assert [found.data for found in await client.take(60)] == list(range(1, 61))
            assert await client.nothing()

    asyncio.run(run())


def test_a_stream_opened_while_redis_is_down_begins_when_it_is_back(own: OwnRedis) -> None:
    async def run() -> None:
        own.kill()
        channel = fresh()
        async with reading(channel, counting(channel)) as (client, _):
            await asyncio.sleep(0.5)
            await own.restart()
            assert [found.data["n"] for found in await client.take(3)] == [1, 2, 3]

    asyncio.run(run())


def test_the_librarys_own_listener_is_not_in_use() -> None:
    """It ends with the first lost connection, and its Redis setting allows no more than localhost."""
    assert ListenerManager().redis_listener is None


def test_no_module_sends_or_listens_outside_this_package() -> None:
    """The library's `send_event` publishes before a transaction commits, and stores and publishes in separate steps."""
    root = Path(__file__).resolve().parents[3]
    names = ("platform", "workspaces", "namespaces", "credits", "sandboxes", "pages", "notifications", "assist", "cdn")
    users = [
        str(file.relative_to(root))
        for name in names
        for file in (root / name).rglob("*.py")
        if "import" in file.read_text() and "from django_eventstream" in file.read_text()
    ]
    assert users == ["platform/common/sse/hub.py"]
