"""A hold that is killed at any moment: what tasks wrote is there once or counted, and nothing else is left of them."""

from __future__ import annotations

import asyncio
import random
import struct
import time
from contextlib import suppress

import pytest

from tests.vmbackend.hold_factory import LocalHold, needs_cgroups
from tests.vmbackend.hold_tasks import KIB, MIB, WINDOW, Received, begin, begin_followed, ended, read_all, with_client
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.test_hold_commands import GROUPS
from vmbackend.errors import BackendError
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.task_record import TaskStatus
from vmbackend.guest.hold.tasks import TaskLimits

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
LAST = 60_000
EVERYTHING = b"".join(b"%d\n" % line for line in range(1, LAST + 1))
HUNDRED_MB = 12_500_000  # lines


def restart(hold: LocalHold) -> None:
    hold.process.kill()
    hold.process.wait()
    hold.start()


def right(seen: Received) -> None:
    """Whether each byte is the one of its place, and all others are counted."""
    assert all(EVERYTHING[piece.offset : piece.end] == piece.data for piece in seen.pieces)
    assert seen.end
    assert seen.gaps + len(seen.out) == seen.end.log_end


async def start_some(client: HoldClient, chance: random.Random, ids: list[int]) -> None:
    """Tasks of all kinds, until the hold is killed."""
    limits = TaskLimits(log_bytes=chance.choice([32, 64, 256]) * KIB, ended=chance.choice([3, 20]))
    with suppress(BackendError):
        while True:
            script = chance.choice([f"seq 1 {LAST}", f"seq 1 {LAST}; sleep 600", "seq 1 10", "seq 1 2000; exit 3"])
            ids.append((await begin(client, script, limits=limits)).id)
            if chance.random() < 0.3:
                await client.tasks.remove(chance.choice(ids[-3:]))
            await asyncio.sleep(chance.random() * 0.05)


def groups(holds: set[int]) -> list[str]:
    """The groups of tasks that these processes have made."""
    return [str(path) for base in GROUPS for pid in holds for path in base.glob(f"k-{pid}-*")]


@needs_cgroups
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_each_byte_is_there_once_or_counted(hold: LocalHold, seed: int) -> None:
    chance = random.Random(seed)
    holds = {hold.process.pid}

    async def work(client: HoldClient) -> None:
        ids: list[int] = []
        for _ in range(6):
            doing = asyncio.ensure_future(start_some(client, chance, ids))
            await asyncio.sleep(0.1 + chance.random() * 0.4)
            restart(hold)
            holds.add(hold.process.pid)
            doing.cancel()
            await asyncio.wait([doing])
            await client.close()
            client = hold.client()
            found = await client.tasks.list()
            assert all(task.is_over for task in found)
            assert {path.name.split("-")[0][1:] for path in hold.tasks.glob("[lr][0-9]*")} <= {str(t.id) for t in found}
            for task in found:
                right(await read_all(await client.tasks.follow(task.id, offset=0, window=WINDOW)))
                if task.error:
                    assert (task.error, task.status, task.exit_code) == ("interrupted", TaskStatus.FAILED, None)
        assert ids == sorted(set(ids))
        await client.close()
        deadline = time.monotonic() + 20
        while left := groups(holds):
            assert time.monotonic() < deadline, left
            await asyncio.sleep(0.1)

    with_client(hold, work)


def head(output: int, size: int) -> bytes:
    return struct.pack(">BQ", output, size)


@pytest.mark.parametrize(
    ("log", "kept"),
    [
        (head(1, 5) + b"12345" + head(2, 9) + b"678", b"12345678"),
        (head(1, 5) + b"12345" + head(2, 9), b"12345"),
        (head(1, 5) + b"12345" + head(2, 9)[:8], b"12345"),
        (head(1, 5) + b"12345" + bytes(500), b"12345"),
        (head(1, 5) + b"12345" + b"\xff" * 500, b"12345"),
        (head(1, 2**64 - 9), b""),
        (head(1, 5) + b"12345" + head(3, 2**64 - 9) * 9, b"12345"),
        (head(1, 5) + b"12345" + head(3, 2**64 - 20) + head(1, 2**64 - 40) * 9, b"12345"),
        (head(3, 2**64 - 1) + head(1, 1) + b"x", b""),
        (head(1, 0) * 1000 + head(2, 1) + b"1", b"1"),
        (b"", b""),
    ],
)
def test_a_log_with_any_end_is_read_up_to_it(hold: LocalHold, log: bytes, kept: bytes) -> None:
    async def work(client: HoldClient) -> None:
        task = (await begin(client, "sleep 600")).id
        hold.process.kill()
        hold.process.wait()
        (hold.tasks / f"l{task}-0").write_bytes(log)
        hold.start()
        async with asyncio.timeout(20):
            record = await client.tasks.show(task)
            assert record.log_end == len(kept)
            last, is_cut = await client.tasks.follow_last(task, MIB, WINDOW)
            for output in (await client.tasks.follow(task, offset=0, window=WINDOW), last):
                seen = await read_all(output)
                assert b"".join(piece.data for piece in seen.pieces) == kept
                assert seen.gaps == 0
            assert not is_cut

    with_client(hold, work)


def test_of_three_files_the_newest_two_are_kept(hold: LocalHold) -> None:
    """A hold was killed after it had made a new one, and before it removed the oldest."""

    async def work(client: HoldClient) -> None:
        for order in ((0, 5, 10), (10, 5, 0), (5, 10, 0), (5, 0, 10)):
            task = (await begin(client, "sleep 600")).id
            hold.process.kill()
            hold.process.wait()
            for start in order:
                (hold.tasks / f"l{task}-{start}").write_bytes(head(1, 5) + b"%05d" % start)
            hold.start()
            record = await client.tasks.show(task)
            assert (record.log_start, record.log_end) == (5, 15)
            assert (await read_all(await client.tasks.follow(task, offset=5, window=WINDOW))).out == b"0000500010"
            assert {path.name for path in hold.tasks.glob(f"l{task}-*")} == {f"l{task}-5", f"l{task}-10"}

    with_client(hold, work)


def test_a_hundred_mb_of_lines_come_once_over_fifty_connections(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        _, output = await begin_followed(client, f"seq 1 {HUNDRED_MB}")
        at, cuts, rest, line = 0, 0, b"", 0
        while not hasattr(piece := await output.read(), "status"):
            assert piece.offset == at
            at = piece.end
            *lines, rest = (rest + piece.data).split(b"\n")
            for each in lines:
                line += 1
                assert int(each) == line
            if at > cuts * 3 * MIB // 2 and cuts < 50:
                hold.cut()
                cuts += 1
        assert (line, rest, cuts) == (HUNDRED_MB, b"", 50)
        assert piece.log_end == at
        assert await output.read() == piece

    with_client(hold, work, seconds=300)


def test_while_nobody_is_there_one_gap_counts_what_is_gone(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        record = await begin(client, f"seq 1 {HUNDRED_MB // 4}")
        record = await ended(client, record.id)
        seen = await read_all(await client.tasks.follow(record.id, offset=0, window=WINDOW))
        wanted = b"".join(b"%d\n" % line for line in range(1, HUNDRED_MB // 4 + 1))
        assert seen.pieces[0].offset == seen.gaps == record.log_start > 0
        assert seen.out == wanted[seen.gaps :]

    with_client(hold, work)
