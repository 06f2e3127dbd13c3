"""A hold that was killed: nothing of it is left once the next one runs, and no client gets another terminal instead."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.processes import is_running
from tests.vmbackend.hold_factory import LocalHold, RawPeer, needs_cgroups, read_rest, read_until
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.test_command_cgroups import GROUPS
from tests.vmbackend.test_hold_commands import command, run_frame, with_client, written
from tests.vmbackend.test_hold_groups import until
from vmbackend.errors import GuestUnreachable
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.errors import TerminalNotFound
from vmbackend.guest.hold.frames import Request

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")

# Neither a hang-up nor a broken pipe ends them.
ESCAPED = "trap '' HUP TERM PIPE; setsid sh -c 'echo $$ > {0}; exec sleep 1000' & sleep 1000"


def kill(hold: LocalHold) -> None:
    hold.process.send_signal(signal.SIGKILL)
    hold.process.wait(60)


def groups(hold: LocalHold) -> list[Path]:
    return [path for base in GROUPS for kind in "tc" for path in base.glob(f"{kind}-{hold.process.pid}-*")]


@needs_cgroups
def test_what_it_ran_ends_with_the_start_of_the_next_one(hold: LocalHold, tmp_path: Path) -> None:
    async def work(client: HoldClient) -> None:
        await client.create_terminal(["sh", "-c", ESCAPED.format(tmp_path / "t")])
        await client.watch_folder(str(tmp_path))
        running = asyncio.ensure_future(command(client, ESCAPED.format(tmp_path / "c")))
        pids = [int(await written(tmp_path / name)) for name in "tc"]
        assert len(groups(hold)) == 2
        kill(hold)
        with pytest.raises(GuestUnreachable):
            await running
        assert await client.list_terminals() == []
        await until(lambda: not any(map(is_running, pids)))
        await until(lambda: not groups(hold))
        await until(lambda: not watchers(hold))

    with_client(hold, work)


def watchers(hold: LocalHold) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            if words[:2] == [b"guest", b"watch"] and (path / "exe").readlink() == hold.helper:
                found.append(path.name)
        except OSError:
            continue
    return found


@needs_cgroups
def test_what_a_program_left_in_the_background_before_lives_on(hold: LocalHold, tmp_path: Path) -> None:
    """As after any ordinary end."""
    background = "trap '' HUP; sh -c 'echo $$ > {0}; exec sleep 1000' > /dev/null 2>&1 & while [ ! -s {0} ]; do :; done"

    async def work(client: HoldClient) -> None:
        await command(client, background.format(tmp_path / "c"))
        terminal = await client.create_terminal(["sh", "-c", background.format(tmp_path / "t")])
        await terminal.wait()
        pids = [int(await written(tmp_path / name)) for name in "tc"]
        kill(hold)
        assert await client.list_terminals() == []
        assert (await command(client, "echo next")).out == b"next\n"
        assert all(map(is_running, pids))
        assert len(groups(hold)) == 2
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not groups(hold))

    with_client(hold, work)


def test_a_client_that_was_away_does_not_find_another_terminal_under_its_id(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        lost = await client.create_terminal(["sh", "-c", "echo mine; exec sleep 1000"])
        await read_until(lost, b"mine")
        await client.close()
        kill(hold)
        other, back = hold.client(), hold.client()
        made = await other.create_terminal(["sh", "-c", "seq 10000; exec sleep 1000"])
        await read_until(made, b"10000")
        assert made.id == lost.id + 1
        with pytest.raises(TerminalNotFound):
            await back.attach_terminal(lost.id, lost.offset)
        await other.close()
        await back.close()

    with_client(hold, work)


def test_every_client_learns_of_its_lost_terminals_and_reads_what_it_had(hold: LocalHold) -> None:
    async def work(first: HoldClient) -> None:
        second = hold.client()
        mine = await first.create_terminal(["sh", "-c", "seq 1000; exec yes"])
        seen = await read_until(mine, b"1000\r\n")
        same = await second.attach_terminal(mine.id)
        await same.read()
        kill(hold)
        assert await first.list_terminals() == []
        new = await first.create_terminal(["cat"])
        for terminal in (mine, same):
            with pytest.raises(TerminalNotFound):
                await read_rest(terminal)
        assert mine.offset >= len(seen)
        for call in (mine.write(b"x"), mine.resize(80, 24), mine.modes()):
            with pytest.raises(TerminalNotFound):
                await call
        await mine.close()  # closes no other
        assert [each.id for each in await second.list_terminals()] == [new.id]
        await second.close()

    with_client(hold, work)


def test_killed_at_any_moment_of_its_work_it_is_replaced(hold: LocalHold) -> None:
    """By whichever client comes first, once."""

    async def work(client: HoldClient) -> None:
        for seconds in (0, 0.001, 0.003, 0.01, 0.03):
            with RawPeer(hold) as peer:
                peer.greet(os.urandom(16))
                for number in range(20):
                    peer.send(Request.RUN, number, *run_frame("seq 1000"))
                await asyncio.sleep(seconds)
                end_hold(hold)
                peer.wait_end()
            assert await client.list_terminals() == []
            terminals = await asyncio.gather(*(client.create_terminal(["cat"]) for _ in range(3)))
            for terminal in terminals:
                await terminal.write(b"here\r")
                await read_until(terminal, b"here\r\nhere")
            assert len(await client.list_terminals()) == 3

    with_client(hold, work)


def end_hold(hold: LocalHold) -> None:
    """Whichever process listens at present."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            if words[1:2] == [b"hold"] and (path / "exe").readlink() == hold.helper:
                os.kill(int(path.name), signal.SIGKILL)
        except OSError:
            continue
