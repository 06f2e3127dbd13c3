"""Commands that the hold runs to their end: outputs, ends, deadlines, what they leave behind."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from tests.processes import is_running
from tests.vmbackend.hold_factory import LocalHold, RawPeer
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.test_command_cgroups import GROUPS, wait_gone
from vmbackend.errors import GuestUnreachable
from vmbackend.guest.buffers import BoundedBuffer
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.command import CommandStart, NotStarted
from vmbackend.guest.hold.frames import Answer, Failure, Request, number, text, texts

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
MIB = 1 << 20
MAX_COMMANDS = 64


class Ran:
    """A command's end."""

    def __init__(self, code: int, out: BoundedBuffer, err: BoundedBuffer) -> None:
        self.code, self.out, self.err = code, bytes(out.data), bytes(err.data)
        self.truncated = out.truncated or err.truncated


async def command(
    client: HoldClient,
    script: str | list[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = "/",
    user: str | None = None,
    timeout: float = 60.0,
    slack: float = 60.0,
    limit: int = MIB,
) -> Ran:
    words = ["sh", "-c", script] if isinstance(script, str) else script
    out, err = BoundedBuffer(limit), BoundedBuffer(limit)
    start = CommandStart(words, env or {}, cwd, user)
    code = await client.commands.run(start, out, err, timeout=timeout, slack=slack, limit=limit)
    return Ran(code, out, err)


def with_client(hold: LocalHold, work: Callable[[HoldClient], Awaitable[None]]) -> None:
    async def session() -> None:
        client = hold.client()
        try:
            await asyncio.wait_for(work(client), 120)
        finally:
            await client.close()

    asyncio.run(session())


async def written(path: Path) -> str:
    """What a command writes there, with a line's end."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    return path.read_text().strip()


async def once_there_is_room(client: HoldClient, script: str) -> Ran:
    """Not by the groups: that of a command that was killed may stay for a moment."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return await command(client, script)
        except NotStarted:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


def groups_of(hold: LocalHold) -> list[Path]:
    return [path for base in GROUPS for path in base.glob(f"c-{hold.process.pid}-*")]


async def no_groups(hold: LocalHold) -> None:
    """They are removed without another command, once the kernel has ended the last that was in them."""
    deadline = time.monotonic() + 60
    while groups_of(hold):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def test_both_outputs_and_the_end_are_received(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        ran = await command(client, "echo out; echo err >&2; exit 3")
        assert (ran.code, ran.out, ran.err, ran.truncated) == (3, b"out\n", b"err\n", False)
        assert (await command(client, "kill -9 $$")).code == 128 + 9
        assert (await command(client, "kill -TERM $$")).code == 128 + 15
        assert (await command(client, "true")).code == 0

    with_client(hold, work)


def test_environment_directory_and_user_are_those_of_guest_run(hold: LocalHold, tmp_path: Path) -> None:
    async def work(client: HoldClient) -> None:
        ran = await command(client, "env; pwd; id -u", env={"A": "1=2", "PATH": os.environ["PATH"]}, cwd=str(tmp_path))
        lines = ran.out.decode().splitlines()
        assert {"A=1=2", "HOME=/root", "USER=root", "LOGNAME=root", str(tmp_path), "0"} <= set(lines)
        assert not any(line.startswith("TERM=") for line in lines)
        assert (await command(client, "pwd", cwd=None)).out == b"/root\n"
        assert (await command(client, "id -u; id -g", user="nobody:12")).out == b"65534\n12\n"
        assert (await command(client, "test -p /dev/stdin && cat")).code == 0

    with_client(hold, work)


def test_what_cannot_start_is_said_as_guest_run_says_it(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        ran = await command(client, "true", cwd="/absent")
        assert (ran.code, ran.err) == (126, b"guest: cannot enter /absent: No such file or directory\n")
        ran = await command(client, "true", user="absent")
        assert (ran.code, ran.err) == (126, b"guest: no such user: absent\n")
        ran = await command(client, ["/absent"])
        assert (ran.code, ran.err) == (127, b"guest: cannot start /absent: No such file or directory\n")
        ran = await command(client, ["/etc/passwd"])
        assert (ran.code, ran.err) == (126, b"guest: cannot start /etc/passwd: Permission denied\n")

    with_client(hold, work)


def test_the_deadline_kills_what_left_the_session_and_ignores_signals(hold: LocalHold, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"echo said; trap '' HUP TERM INT; setsid setsid sh -c 'echo $$ > {pid}; exec sleep 1000' & sleep 1000"

    async def work(client: HoldClient) -> None:
        ran = await command(client, script, timeout=2)
        assert (ran.code, ran.out) == (124, b"said\n")
        await asyncio.to_thread(wait_gone, int(pid.read_text()))
        await no_groups(hold)

    with_client(hold, work)


def test_what_stays_in_the_background_lives_and_holds_no_answer_open(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        ran = await command(client, "yes & echo fine >&2")
        assert (ran.code, ran.err) == (0, b"fine\n")
        ran = await command(client, "sleep 1000 & echo $!")
        pid = int(ran.out)
        assert (await command(client, "true")).code == 0
        assert is_running(pid)
        assert groups_of(hold)
        os.kill(pid, 9)
        await asyncio.to_thread(wait_gone, pid)
        await no_groups(hold)

    with_client(hold, work)


def test_all_that_was_written_before_the_end_is_received(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        wanted = b"".join(b"%d\n" % number for number in range(1, 50_001))
        for script in ("seq 50000", "seq 50000 >&2", "seq 50000; sleep 30 &"):
            ran = await command(client, script)
            assert ran.out + ran.err == wanted

    with_client(hold, work)


def test_output_beyond_the_limit_is_dropped_in_the_guest(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        ran = await command(client, "seq 1000000; echo whole >&2", limit=1000)
        assert (ran.code, len(ran.out), ran.err, ran.truncated) == (0, 1000, b"whole\n", True)
        ran = await command(client, "printf 1234567890", limit=10)
        assert (ran.out, ran.truncated) == (b"1234567890", False)
        ran = await command(client, "printf 1234567890", limit=0)
        assert (ran.out, ran.truncated) == (b"", True)

    with_client(hold, work)


def test_a_cut_connection_ends_the_command_and_is_not_repeated(hold: LocalHold, tmp_path: Path) -> None:
    pid, runs = tmp_path / "pid", tmp_path / "runs"
    script = f"echo run >> {runs}; setsid sh -c 'echo $$ > {pid}; exec sleep 1000' & sleep 1000"

    async def work(client: HoldClient) -> None:
        running = asyncio.ensure_future(command(client, script))
        found = int(await written(pid))
        hold.cut()
        with pytest.raises(GuestUnreachable):
            await running
        await asyncio.to_thread(wait_gone, found)
        assert (await command(client, f"cat {runs}")).out == b"run\n"

    with_client(hold, work)


def test_a_caller_that_leaves_ends_its_command_and_no_other(hold: LocalHold, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"

    async def work(client: HoldClient) -> None:
        tasks = [
            asyncio.ensure_future(command(client, f"setsid sh -c 'echo $$ > {path}; exec sleep 1000'; true"))
            for path in (first, second)
        ]
        pids = [int(await written(path)) for path in (first, second)]
        tasks[0].cancel()
        await asyncio.to_thread(wait_gone, pids[0])
        assert is_running(pids[1])
        with pytest.raises(TimeoutError):
            await command(client, f"kill -STOP {hold.process.pid}; sleep 1000", timeout=1, slack=1)
        os.kill(hold.process.pid, 18)
        await client.close()
        await asyncio.to_thread(wait_gone, pids[1])
        await asyncio.gather(*tasks, return_exceptions=True)

    with_client(hold, work)


def test_many_at_once_keep_their_outputs_apart(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        places = asyncio.Semaphore(MAX_COMMANDS)

        async def one(word: int) -> None:
            async with places:
                ran = await command(client, f"echo {word}; seq {word} >&2; exit {word % 100}")
            assert (ran.code, ran.out) == (word % 100, b"%d\n" % word)
            assert ran.err.splitlines()[-1:] == ([b"%d" % word] if word else [])

        await asyncio.gather(*map(one, range(200)))
        await no_groups(hold)

    with_client(hold, work)


def test_one_more_than_the_limit_is_refused_and_was_not_started(hold: LocalHold, tmp_path: Path) -> None:
    async def work(client: HoldClient) -> None:
        running = [asyncio.ensure_future(command(client, "sleep 1000")) for _ in range(MAX_COMMANDS)]
        while len(groups_of(hold)) < MAX_COMMANDS:
            await asyncio.sleep(0.02)
        with pytest.raises(NotStarted):
            await command(client, f"touch {tmp_path}/ran")
        running[0].cancel()
        assert (await once_there_is_room(client, "echo again")).out == b"again\n"
        assert list(tmp_path.glob("ran")) == []
        for task in running:
            task.cancel()

    with_client(hold, work)


def test_the_next_command_starts_a_hold_that_was_killed(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        assert (await command(client, "echo one")).out == b"one\n"
        hold.process.kill()
        hold.process.wait()
        while True:
            try:
                assert (await command(client, "echo two")).out == b"two\n"
                return
            except GuestUnreachable:  # the end of the connection was not noticed yet
                await asyncio.sleep(0.05)

    with_client(hold, work)


def run_frame(script: str, limit: int = MIB, id: int = 1) -> tuple[bytes, ...]:
    words = texts(["sh", "-c", script])
    return number(id, 4), number(60_000, 4), number(limit, 4), text(""), text("/"), words, texts([])


def test_a_client_that_does_not_read_stops_its_command_and_takes_no_memory(hold: LocalHold, tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"i=0; while :; do head -c 65536 /dev/zero; i=$((i+1)); echo $i > {count}; done"
    with RawPeer(hold) as peer, RawPeer(hold) as other:
        peer.greet(os.urandom(16))
        other.greet(os.urandom(16))
        peer.send(Request.RUN, 1, *run_frame(script, limit=1 << 31))
        deadline = time.monotonic() + 60
        seen = ""
        while not seen or seen != count.read_text():
            assert time.monotonic() < deadline
            seen = count.read_text() if count.exists() else ""
            time.sleep(0.5)
        assert int(seen or 0) * 65536 < MIB
        assert hold.memory() < 8 * MIB
        other.send(Request.RUN, 1, *run_frame("echo fine"))
        assert other.receive() == (Answer.WRITTEN, 1, b"\1fine\n")
        assert other.receive() == (Answer.DONE, 1, b"\0\0")


def test_bad_requests_get_their_failure_and_the_connection_goes_on(hold: LocalHold) -> None:
    good = run_frame("true")
    bad: list[tuple[bytes, ...]] = [
        (),
        good[:-1],
        (*good, b"x"),
        (*good[:3], text("a\0b"), *good[4:]),
        (*good[:3], text("a" * 4097), *good[4:]),
        (*good[:5], texts([]), good[6]),
        (*good[:5], b"\xff" * 4),
        (*good[:6], number(5000, 4)),
    ]
    with RawPeer(hold) as peer:
        peer.greet(os.urandom(16))
        for about, parts in enumerate(bad, 100):
            peer.send(Request.RUN, about, *parts)
            kind, answered, body = peer.receive()
            assert (kind, answered, body[:2]) == (Answer.FAILED, about, number(Failure.BAD_REQUEST, 2)), parts
        for parts in ((), (number(7, 4),), (b"\xff" * 9,)):
            peer.send(Request.STOP, 1, *parts)  # not answered
        peer.send(Request.RUN, 5, *run_frame("true", id=2**32 - 1))
        assert peer.receive() == (Answer.DONE, 5, b"\0\0")
    assert hold.process.poll() is None
