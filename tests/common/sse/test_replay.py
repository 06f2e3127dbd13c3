"""A channel's replay buffer in Redis: bounded, written by one source, paused while its subject is changed."""

from __future__ import annotations

import asyncio

import pytest

from common.redis import open_async_client, redis_client
from common.sse.replay import Channel, ReplayBuffer, Superseded, drop_channel, pause_channel
from tests.common.sse.reading import Writer, fresh, reading


def test_a_replay_buffer_holds_no_more_than_its_channel_allows() -> None:
    async def run() -> None:
        channel = Channel(fresh().name, max_events=10, max_bytes=1000)
        async with reading(channel) as (_, runtime):
            writer = Writer(runtime.replay, channel)
            await writer.write(*range(100))
            assert await runtime.client.llen(channel.keys[1]) == 10
            await writer.write("x" * 400, "y" * 400, "z" * 400)
            assert await runtime.client.llen(channel.keys[1]) == 2
            await writer.write("w" * 5000)
            assert await runtime.client.llen(channel.keys[1]) == 1
            assert 0 < await runtime.client.ttl(channel.keys[1]) <= channel.ttl

    asyncio.run(run())


def test_a_source_that_is_not_the_only_one_finds_out_before_it_publishes() -> None:
    async def run() -> None:
        channel = fresh()
        async with reading(channel) as (client, runtime):
            one, two = Writer(runtime.replay, channel), Writer(runtime.replay, channel)
            await one.write("a")
            with pytest.raises(Superseded):
                await two.write("a")
            assert (await client.next()).data == "a"
            assert await client.nothing()

    asyncio.run(run())


def test_a_paused_replay_buffer_is_not_kept_alive_and_others_are() -> None:
    async def run() -> None:
        channel = fresh()
        async with open_async_client() as client:
            replay = ReplayBuffer(client)
            await replay.extend_ttl(channel)
            assert not await client.exists(*channel.keys)
            writer = Writer(replay, channel)
            await writer.write(1)
            await client.expire(channel.keys[0], 5)
            await replay.extend_ttl(channel)
            assert await client.ttl(channel.keys[0]) > 5
            pause_channel(redis_client(), channel)
            await client.expire(channel.keys[0], 5)
            await replay.extend_ttl(channel)
            assert await client.ttl(channel.keys[0]) <= 5
            with pytest.raises(Superseded):
                await writer.write(2)
            drop_channel(redis_client(), channel)
            assert not await client.exists(*channel.keys)

    asyncio.run(run())
