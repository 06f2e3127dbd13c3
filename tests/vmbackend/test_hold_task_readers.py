"""Readers of tasks that are slow, or away, at the end of a task that is to be forgotten, or that keeps no log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.vmbackend.hold_factory import LocalHold, compile_hold
from tests.vmbackend.hold_tasks import (
    KIB,
    Received,
    begin_followed,
    read_all,
    read_more,
    run,
    start_of,
    take,
    with_client,
)
from tests.vmbackend.local_dropbear import missing_requirement
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.errors import TaskNotFound
from vmbackend.guest.hold.tasks import TaskLimits, TaskOptions

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
SMALL = TaskLimits(log_bytes=256 * KIB)
FOLLOW_SECONDS = 2.0


@pytest.fixture(scope="module")
def hasty_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hold that waits for followers for two seconds instead of a minute."""
    program = tmp_path_factory.mktemp("hasty") / "guest"
    compile_hold(program, f"-DFOLLOW_MS={int(FOLLOW_SECONDS * 1000)}")
    return program


@pytest.fixture
def hasty(hasty_program: Path, tmp_path: Path) -> Iterator[LocalHold]:
    hold = LocalHold(hasty_program, tmp_path / "hold")
    yield hold
    hold.close()


def numbers(last: int) -> bytes:
    return b"".join(b"%d\n" % line for line in range(1, last + 1))


async def gone(client: HoldClient, task: int) -> None:
    with suppress(TaskNotFound):
        while await client.tasks.show(task):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("options", [{"ttl": 0}, {"keep_log": False}, {"ttl": 0, "keep_log": False}])
def test_who_reads_a_task_has_all_of_it_before_it_is_forgotten(hold: LocalHold, options: dict[str, int]) -> None:
    async def work(client: HoldClient) -> None:
        seen = await run(client, "seq 1 300000", window=16 * KIB, **options)
        assert (seen.out == numbers(300000), seen.gaps) == (True, 0)
        if "ttl" in options:
            assert seen.end
            await gone(client, seen.end.id)

    with_client(hold, work)


@pytest.mark.parametrize("options", [{"ttl": 0}, {"keep_log": False}])
def test_who_lost_the_connection_finds_the_rest(hold: LocalHold, options: dict[str, int]) -> None:
    async def work(client: HoldClient) -> None:
        _, output = await begin_followed(client, "seq 1 300000", window=16 * KIB, **options)
        seen = Received()
        for rounds in range(1, 20):
            await read_more(output, seen, lambda seen, size=rounds * 100 * KIB: len(seen.out) >= size)
            hold.cut()
        await read_more(output, seen)
        assert (seen.out == numbers(300000), seen.gaps) == (True, 0)

    with_client(hold, work)


@pytest.mark.parametrize("is_there", [True, False])
def test_who_takes_nothing_keeps_no_ended_task(hasty: LocalHold, is_there: bool) -> None:
    async def work(client: HoldClient) -> None:
        record, output = await begin_followed(client, "seq 1 30000", window=4 * KIB, ttl=0)
        if not is_there:
            client.tasks.close_output(output)
        begun = time.monotonic()
        await gone(client, record.id)
        assert 1 < time.monotonic() - begun < 15
        if is_there:
            seen = await read_all(output)
            assert seen.end
            assert seen.out == numbers(30000)[: len(seen.out)]
            assert seen.gaps + len(seen.out) == len(numbers(30000))

    with_client(hasty, work)


@pytest.mark.parametrize("retained", [0, 64 * KIB])
def test_a_slow_reader_that_goes_on_misses_nothing(hasty: LocalHold, retained: int) -> None:
    """It needs longer than the time for each half of the log."""
    speed = SMALL.log_bytes / 2 / (3 * FOLLOW_SECONDS)

    async def work(client: HoldClient) -> None:
        words, options = start_of(["seq", "1", "100000"]), TaskOptions(limits=SMALL)
        _, output = await client.tasks.start_followed(words, options, window=16 * KIB, retained=retained)
        seen, begun = Received(), time.monotonic()
        while seen.end is None:
            take(seen, await output.read())
            await asyncio.sleep(max(0, begun + seen.at / speed - time.monotonic()))
        assert (seen.out == numbers(100000), seen.gaps) == (True, 0)

    with_client(hasty, work)
