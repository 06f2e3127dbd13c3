"""A client that comes back with its last id, after anything that can happen in between: every line once, or a gap."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from common.redis import redis_client
from common.sse.frames import EventId
from tests.callers import Caller
from tests.common.sse.reading import Client
from tests.workspaces.logs.streaming import CMD, call, opened, run
from workspaces.logs.channels import log_channel
from workspaces.logs.publish import LogPublisher

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick")]


def write(log: Path, first: int, end: int) -> None:
    """Lines that have all the same length and end."""
    with log.open("ab") as file:
        file.writelines(b"%04d %s\n" % (number, b"x" * 100) for number in range(first, end))


def rotate(log: Path) -> None:
    log.replace(log.with_name("cmd.log.1"))


async def seen(client: Client, count: int) -> EventId:
    """The id of the last of so many events."""
    found = (await client.take(count))[-1].id
    assert found is not None
    return found


async def until_line(client: Client, number: int) -> list[Any]:
    """What comes up to a line: its number for a line, "gap" for a gap."""
    found: list[Any] = []
    while found[-1:] != [number]:
        event = await client.next()
        found.append("gap" if event.kind == "gap" else int(event.data["line"].split(" ")[0]))
    return found


def test_lines_that_the_channel_leader_had_not_published_come(
    api: Caller, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = LogPublisher._write
    found = asyncio.Event()

    async def never(self: LogPublisher, events: list[tuple[str, str]], position: str) -> None:
        found.set()
        await asyncio.Event().wait()

    async def work() -> None:
        async with opened(api, CMD) as client:
            write(log, 0, 3)
            last = await seen(client, 3)
            monkeypatch.setattr(LogPublisher, "_write", never)
            write(log, 3, 6)
            await found.wait()
        monkeypatch.setattr(LogPublisher, "_write", publish)
        write(log, 6, 8)
        async with opened(api, CMD, Last_Event_ID=str(last)) as client:
            assert await until_line(client, 7) == [3, 4, 5, 6, 7]

    run(work)


@pytest.mark.parametrize("grown", [2, 200])
def test_lines_of_a_file_that_was_rotated_while_nothing_followed_it_come(api: Caller, log: Path, grown: int) -> None:
    async def work() -> None:
        async with opened(api, f"{CMD}?tail_lines=1000") as client:
            write(log, 0, 120)
            last = await seen(client, 110)
            await client.take(10)
        write(log, 120, 130)
        rotate(log)
        write(log, 130, 130 + grown)
        async with opened(api, CMD, Last_Event_ID=str(last)) as client:
            assert await until_line(client, 129 + grown) == list(range(110, 130 + grown))

    run(work)


def test_a_replay_buffer_that_expired_is_a_gap(api: Caller, made: str, log: Path) -> None:
    async def work() -> None:
        async with opened(api, CMD) as client:
            write(log, 0, 10)
            last = await seen(client, 5)
        assert await call(redis_client().delete, *log_channel(made, "cmd").keys) == 2
        write(log, 10, 20)
        async with opened(api, f"{CMD}?tail_lines=3", Last_Event_ID=str(last)) as client:
            assert await until_line(client, 19) == ["gap", 17, 18, 19]

    run(work)


def test_a_replay_buffer_that_dropped_the_lines_is_a_gap(api: Caller, log: Path) -> None:
    async def work() -> None:
        async with opened(api, CMD) as watcher:
            write(log, 0, 10)
            last = await seen(watcher, 5)
            write(log, 10, 2000)
            await until_line(watcher, 1999)
            async with opened(api, CMD, Last_Event_ID=str(last)) as client:
                found = await until_line(client, 1999)
                assert found[0] == "gap"
                assert found[1:] == list(range(found[1], 2000))

    run(work)


@pytest.mark.parametrize("open_meanwhile", [True, False])
def test_a_redis_that_was_emptied_is_a_gap(api: Caller, made: str, log: Path, open_meanwhile: bool) -> None:
    async def work() -> None:
        async with opened(api, CMD) as client:
            write(log, 0, 10)
            last = await seen(client, 10)
            if open_meanwhile:
                await call(redis_client().delete, *log_channel(made, "cmd").keys)
                write(log, 10, 20)
                found = await until_line(client, 19)
        if not open_meanwhile:
            await call(redis_client().delete, *log_channel(made, "cmd").keys)
            write(log, 10, 20)
            async with opened(api, CMD, Last_Event_ID=str(last)) as client:
                found = await until_line(client, 19)
        assert found == ["gap", *range(20)]

    run(work)
