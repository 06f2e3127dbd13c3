"""Clients of event streams and WebSockets are counted over all processes of streams."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from common import stream_clients
from common.async_threads import in_pool_thread
from common.redis import redis_client, redis_key
from common.stream_clients import EVENTS, LEASE_SECONDS, SOCKETS, client_open, open_clients
from tests.common.sse.reading import fresh, reading, until
from tests.common.test_metrics import samples


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    redis_client().delete(redis_key("stream-clients"))
    monkeypatch.setattr(stream_clients, "RENEW_SECONDS", 0.05)


async def until_counted(**expected: int) -> None:
    async def counted() -> bool:
        return await in_pool_thread(open_clients) == expected

    await until(counted)


def write_process(name: str, seconds_left: int, **counts: int) -> None:
    """As a process of streams does that wrote so long ago."""
    now, _ = redis_client().time()
    value = json.dumps({**counts, "ends": now + seconds_left})
    redis_client().hset(redis_key("stream-clients"), name, value)


def test_open_streams_and_sockets_are_counted_until_they_end() -> None:
    async def run() -> None:
        async with reading(fresh()), reading(fresh()):
            with client_open(SOCKETS):
                await until_counted(events=2, sockets=1)
            await until_counted(events=2, sockets=0)
        await until_counted(events=0, sockets=0)
        assert not await in_pool_thread(redis_client().exists, redis_key("stream-clients"))
        with client_open(EVENTS):
            await until_counted(events=1, sockets=0)

    asyncio.run(run())


def test_processes_are_added_and_those_of_a_killed_one_count_no_longer_than_its_lease() -> None:
    write_process("one", LEASE_SECONDS, events=3)
    write_process("two", 2, events=1, sockets=2)
    write_process("killed", 0, events=50)
    write_process("of-another-clock", LEASE_SECONDS + 60, sockets=50)
    assert open_clients() == {EVENTS: 4, SOCKETS: 2}


@pytest.mark.django_db
def test_metrics_show_them() -> None:
    write_process("one", LEASE_SECONDS, events=3, sockets=1)
    found = samples()
    assert found[("mvm_stream_clients", frozenset({("kind", EVENTS)}))] == 3
    assert found[("mvm_stream_clients", frozenset({("kind", SOCKETS)}))] == 1


def test_without_redis_clients_are_served_all_the_same(settings: Any) -> None:
    settings.REDIS_URL = "unix:///nonexistent/redis.sock"

    async def run() -> None:
        with client_open(EVENTS):
            await asyncio.sleep(0.2)

    asyncio.run(run())


def write_one() -> None:
    stream_clients._own._write({EVENTS: 1})


def test_forks_of_one_process_are_counted_apart() -> None:
    for _ in range(2):
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
            process.submit(write_one).result()
    assert open_clients()[EVENTS] == 2
