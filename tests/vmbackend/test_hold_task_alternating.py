"""A log of a million records, as programs write that change their output with every byte, stops no other client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

import pytest

from tests.vmbackend.hold_factory import LocalHold, RawPeer
from tests.vmbackend.hold_tasks import MIB, WINDOW, begin, read_all, with_client
from tests.vmbackend.local_dropbear import missing_requirement
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.frames import Answer, Request, number

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
RECORD = 10  # bytes of the log for one of output
HALF = 8 * MIB // RECORD  # records of one file
PATIENCE = 0.5  # seconds; less is seen, and it was several


def records(first: int, count: int) -> bytes:
    """Single bytes of the two outputs in turn: each ten of them are 0 to 9."""
    pairs = b"".join(bytes([1 + at % 2, 0, 0, 0, 0, 0, 0, 0, 1, 48 + at % 10]) for at in range(10))
    assert first % 10 == 0
    return (pairs * (count // 10 + 1))[: count * RECORD]


async def alternating(client: HoldClient, hold: LocalHold) -> int:
    """A task with such a log of the usual limit: written past the hold, which takes it over from a killed one."""
    task = (await begin(client, "sleep 600")).id
    hold.process.kill()
    hold.process.wait()
    for start in (0, HALF):
        (hold.tasks / f"l{task}-{start}").write_bytes(records(start, HALF))
    hold.start()
    return task


async def longest_wait(hold: LocalHold, work: Awaitable[object]) -> float:
    """How long another client waited for an answer while something was done."""
    longest, doing, other = 0.0, asyncio.ensure_future(work), hold.client()
    while not doing.done():
        begun = time.monotonic()
        await other.list_terminals()
        longest = max(longest, time.monotonic() - begun)
        await asyncio.sleep(0.01)
    await doing
    await other.close()
    return longest


def test_a_hold_that_takes_it_over_soon_answers(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        task = await alternating(client, hold)
        begun = time.monotonic()
        record = await client.tasks.show(task)
        assert time.monotonic() - begun < 1 + PATIENCE
        assert (record.log_start, record.log_end) == (0, 2 * HALF)

    with_client(hold, work)


def test_who_reads_its_end_or_follows_from_its_middle_stops_nobody(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        task = await alternating(client, hold)
        await client.tasks.show(task)

        async def last() -> None:
            output, is_cut = await client.tasks.follow_last(task, 1000, WINDOW)
            seen = await read_all(output)
            assert (seen.out, seen.err, is_cut) == (b"02468" * 200, b"13579" * 200, True)

        async def middle() -> None:
            output = await client.tasks.follow(task, offset=2 * HALF - 50_000, window=WINDOW)
            seen = await read_all(output)
            assert (seen.out, seen.err, seen.gaps) == (b"02468" * 5000, b"13579" * 5000, 2 * HALF - 50_000)

        waited = {each.__name__: await longest_wait(hold, each()) for each in (last, middle)}
        assert max(waited.values()) < PATIENCE, waited

    with_client(hold, work)


def test_a_reader_with_any_window_stops_nobody(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        task = await alternating(client, hold)
        await client.tasks.show(task)

        def read_much() -> None:
            with RawPeer(hold) as peer:
                peer.greet(b"p" * 16)
                wanted = number(7, 4), number(2**32 - 1, 4), number(0, 1), number(0, 4), number(0, 8)
                peer.send(Request.TASK_FOLLOW, 1, number(task, 8), *wanted)
                assert peer.receive()[:2] == (Answer.DONE, 1)
                for at in range(30_000):
                    assert peer.receive()[2] == number(at, 8) + bytes([1 + at % 2, 48 + at % 10])

        waited = await longest_wait(hold, asyncio.to_thread(read_much))
        assert waited < PATIENCE

    with_client(hold, work)
