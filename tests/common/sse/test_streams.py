"""What clients of event streams receive: each event once and in order, what they missed, or a gap."""

from __future__ import annotations

import asyncio

import pytest

from common.redis import redis_client
from common.sse import runtime as runtimes
from common.sse import stream
from common.sse.frames import EventId
from common.sse.runtime import Reader
from tests.common.sse.reading import Writer, body_of, fresh, no_source, none_revoked, reading, until


def test_events_come_once_and_in_order_to_every_client() -> None:
    async def run() -> None:
        channel = fresh()
        async with reading(channel) as (one, runtime), reading(channel) as (two, _):
            writer = Writer(runtime.replay, channel)
            for number in range(30):
                await writer.write({"n": number})
            for client in (one, two):
                frames = await client.take(30)
                assert [found.data["n"] for found in frames] == list(range(30))
                assert [found.id.number for found in frames if found.id] == list(range(1, 31))
                assert {found.kind for found in frames} == {"message"}
                assert await client.nothing()

    asyncio.run(run())


def test_a_new_client_begins_with_the_last_events_that_it_asks_for() -> None:
    async def run() -> None:
        channel = fresh()
        async with reading(channel) as (_, runtime):
            await Writer(runtime.replay, channel).write(*range(20))
            for tail, expected in ((0, []), (3, [17, 18, 19]), (500, list(range(20)))):
                async with reading(channel, tail=tail) as (client, _):
                    assert [found.data for found in await client.take(len(expected))] == expected
                    assert await client.nothing()

    asyncio.run(run())


def test_a_client_that_reconnects_gets_what_it_missed_and_no_more() -> None:
    async def run() -> None:
        channel = fresh()
        async with reading(channel) as (watcher, runtime):
            writer = Writer(runtime.replay, channel)
            await writer.write(*range(10))
            seen = (await watcher.take(4))[-1]
            await writer.write(*range(10, 15))
            async with reading(channel, after=seen.id, tail=100) as (client, _):
                assert [found.data for found in await client.take(11)] == list(range(4, 15))
                await writer.write(15)
                assert (await client.next()).data == 15
                assert await client.nothing()

    asyncio.run(run())


def test_a_client_that_was_away_for_too_long_receives_a_gap_and_goes_on() -> None:
    async def run() -> None:
        channel = fresh()
        async with reading(channel) as (watcher, runtime):
            writer = Writer(runtime.replay, channel)
            await writer.write(0)
            seen = (await watcher.next()).id
            for number in range(1, 121):
                await writer.write(number)
            async with reading(channel, after=seen) as (client, _):
                gap = await client.next()
                assert gap.kind == "gap"
                frames = await client.take(50)
                assert [found.data for found in frames] == list(range(71, 121))
                assert gap.id == EventId(frames[0].id.epoch, frames[0].id.number - 1)  # type: ignore[union-attr]
            # A client that reconnects after the gap alone continues behind it.
            async with reading(channel, after=gap.id) as (client, _):
                assert (await client.next()).data == 71

    asyncio.run(run())


@pytest.mark.parametrize("after", [EventId("unknown", 0), EventId("0a1b2c3d", 3)])
def test_an_id_of_another_epoch_is_a_gap(after: EventId) -> None:
    async def run() -> None:
        channel = fresh()
        async with reading(channel) as (_, runtime):
            await Writer(runtime.replay, channel).write(*range(9))
            async with reading(channel, after=after, tail=2) as (client, _):
                assert [found.kind for found in await client.take(3)] == ["gap", "message", "message"]

    asyncio.run(run())


def test_an_id_from_the_future_waits_for_the_next_event() -> None:
    async def run() -> None:
        channel = fresh()
        async with reading(channel) as (watcher, runtime):
            writer = Writer(runtime.replay, channel)
            await writer.write(1)
            epoch = (await watcher.next()).id.epoch  # type: ignore[union-attr]
            async with reading(channel, after=EventId(epoch, 10**14)) as (client, _):
                await asyncio.sleep(0.1)
                await writer.write(2)
                assert (await client.next()).data == 2

    asyncio.run(run())


def test_heartbeats_are_sent_between_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.2)

    async def run() -> None:
        channel = fresh()
        async with reading(channel) as (client, runtime):
            found = await client.frame()
            assert found is not None
            assert found.text == ": heartbeat"
            writer = Writer(runtime.replay, channel)

            async def write() -> None:
                while True:
                    await writer.write("x")
                    await asyncio.sleep(0.02)

            writing = asyncio.ensure_future(write())
            texts = [(await client.frame()).text for _ in range(30)]  # type: ignore[union-attr]
            writing.cancel()
            assert ": heartbeat" in texts
            assert len([text for text in texts if text.startswith("event: message")]) > 10

    asyncio.run(run())


def test_a_client_that_does_not_read_costs_a_short_queue_and_then_gets_a_gap() -> None:
    async def run() -> None:
        channel = fresh()
        reader = Reader(channel, no_source, "t", none_revoked, tail=1000)
        async with body_of(reader) as (body, runtime):
            assert await anext(body) == b"retry: 2000\n\n"
            writer = Writer(runtime.replay, channel)
            await writer.write("first")
            assert b'"first"' in await anext(body)
            for number in range(2000):
                await writer.write("x" * 1000 + str(number))
            (subscription,) = runtime.readers
            await until(lambda: subscription.overflow)
            assert [len(queue) for queue in subscription.channel_items.values()] == [10]
            text = b""
            while b"1999" not in text:
                text += await anext(body)
            assert len(text) < 80_000
            assert text.count(b"event: gap") == 1
            await writer.write("end")
            assert b'"end"' in await anext(body)

    asyncio.run(run())


def test_a_stream_whose_grant_is_revoked_ends_before_another_event(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        channel = fresh()
        gone: set[str] = set()

        def check(grants: object) -> dict[str, str]:
            return dict.fromkeys(gone, "no more")

        async with (
            reading(channel, grant="a", revoked=check) as (one, runtime),
            reading(channel, grant="b", revoked=check) as (two, _),
        ):
            gone.add("a")
            await runtime.end_revoked_streams()
            writer = Writer(runtime.replay, channel)
            await writer.write("secret")
            last = await one.frame()
            assert last is not None
            assert last.text == ": no more"
            assert await one.frame() is None
            assert (await two.next()).data == "secret"

    asyncio.run(run())


def test_grants_are_checked_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "CHECK_SECONDS", 0.05)
    answers: list[dict[str, str] | None] = [{}, None, {"t": "revoked"}]

    def check(grants: object) -> dict[str, str]:
        found = answers.pop(0) if answers else {"t": "revoked"}
        if found is None:
            raise RuntimeError("the database is away")
        return found

    async def run() -> None:
        async with reading(fresh(), revoked=check) as (client, _):
            assert (await client.frame()).text == ": revoked"  # type: ignore[union-attr]
            assert await client.frame() is None

    asyncio.run(run())


def test_nothing_is_left_when_the_last_stream_is_over() -> None:
    async def run() -> None:
        before = asyncio.all_tasks()
        channel = fresh()
        async with reading(channel) as (_, runtime):
            await Writer(runtime.replay, channel).write(1)
        assert asyncio.all_tasks() == before
        assert not runtimes._runtimes.get(asyncio.get_running_loop())
        assert not runtime.hub.listeners_by_channel
        assert redis_client().exists(f"{channel.keys[0]}:lease") == 0

    asyncio.run(run())
