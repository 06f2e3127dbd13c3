"""Terminals that the guest keeps: their output by offset, input, size and end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.processes import is_running
from tests.vmbackend.hold_factory import LocalHold, needs_cgroups, read_rest, read_until
from tests.vmbackend.local_dropbear import missing_requirement
from vmbackend.errors import GuestCommandInvalid, GuestUnreachable
from vmbackend.guest.hold.client import HoldClient, HoldSettings
from vmbackend.guest.hold.errors import InputFull, TerminalEnded, TerminalLimit, TerminalNotFound
from vmbackend.guest.hold.terminal_fields import MAX_TERMINALS, TerminalExit

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")

KIB = 1024
SHELL = ["sh", "-c"]


def run(hold: LocalHold, work: Callable[[HoldClient], Awaitable[None]], settings: HoldSettings | None = None) -> None:
    async def session() -> None:
        client = hold.client(settings) if settings else hold.client()
        try:
            await asyncio.wait_for(work(client), 120)
        finally:
            await client.close()

    asyncio.run(session())


async def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def test_a_command_has_its_environment_directory_size_and_exit_code(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal(
            [*SHELL, 'stty size; echo "$X $PWD $TERM"; tty >/dev/null && exit 7'],
            cols=100, rows=40, env={"X": "a b"}, working_dir="/usr",
        )  # fmt: skip
        assert await read_rest(terminal) == b"40 100\r\na b /usr xterm-256color\r\n"
        assert await terminal.wait() == TerminalExit(7, None)

    run(hold, work)


def test_without_a_command_it_is_a_shell(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal(env={"PS1": "> "})
        await terminal.write(b"echo $((40+2)); exit 3\r")
        assert b"42" in await read_rest(terminal)
        assert terminal.exit == TerminalExit(3, None)

    run(hold, work)


def test_a_signal_is_reported_by_name(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal([*SHELL, "kill -USR1 $$"])
        assert await read_rest(terminal) == b""
        assert terminal.exit == TerminalExit(None, "SIGUSR1")

    run(hold, work)


@pytest.mark.parametrize(
    "arguments", [{"command": ["/nothing"]}, {"user": "nobody-here"}, {"working_dir": "/not/there"}]
)
def test_what_cannot_start_says_why_and_leaves_nothing(hold: LocalHold, arguments: dict[str, str]) -> None:
    async def work(client: HoldClient) -> None:
        with pytest.raises(GuestCommandInvalid, match="refused"):
            await client.create_terminal(**{"command": ["true"], **arguments})
        assert await client.list_terminals() == []

    run(hold, work)


def test_a_working_directory_may_be_as_long_as_the_kernel_allows(hold: LocalHold, tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["x" * 250] * 15)
    folder.mkdir(parents=True)

    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal([*SHELL, "echo ${#PWD}"], working_dir=str(folder))
        assert await read_rest(terminal) == b"%d\r\n" % len(str(folder))
        with pytest.raises(GuestCommandInvalid):
            await client.create_terminal(["true"], working_dir="/" + "x" * 4095)

    run(hold, work)


def test_a_new_size_is_seen_by_the_program(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
        terminal = await client.create_terminal([*SHELL, script])
        await read_until(terminal, b"ready")
        assert await terminal.resize(5000, 0) == (1000, 1)
        await read_until(terminal, b"1 1000")
        assert [(entry.cols, entry.rows) for entry in await client.list_terminals()] == [(1000, 1)]

    run(hold, work)


def test_ctrl_c_ends_a_program_whose_output_nobody_reads(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal(["yes"])
        await terminal.read()
        await terminal.write(b"\x03")
        while (await terminal.read())[1]:
            pass
        assert terminal.exit == TerminalExit(None, "SIGINT")

    run(hold, work)


def test_a_reader_that_stops_stops_the_program_and_misses_nothing(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal([*SHELL, "stty -opost; seq 300000"])
        await terminal.read()
        ends = set()
        while True:
            entry = (await client.list_terminals())[0]
            if entry.end in ends:
                break
            ends.add(entry.end)
            await asyncio.sleep(0.5)
        assert entry.exit is None
        assert entry.end <= 256 * KIB
        rest = await read_rest(terminal)
        assert rest.splitlines()[-1] == b"300000"
        assert terminal.offset == sum(len(f"{n}\n") for n in range(1, 300001))

    run(hold, work)


def test_memory_of_a_client_that_does_not_read_is_the_ring(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        before = hold.memory()
        terminal = await client.create_terminal(["yes"])
        await asyncio.sleep(1)
        assert hold.memory() - before < 1024 * KIB
        await terminal.close()

    run(hold, work)


def test_without_a_client_the_program_goes_on_and_the_oldest_output_is_forgotten(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal([*SHELL, "stty -opost; read x; seq 300000; exit 4"])
        id = terminal.id
        await terminal.write(b"\n")
        await client.close()
        other = hold.client()
        try:
            while (entry := (await other.list_terminals())[0]).exit is None:
                await asyncio.sleep(0.05)
            assert entry.end - entry.start == 256 * KIB
            again = await other.attach_terminal(id, 3)
            at, data = await again.read()
            assert at == entry.start
            whole = data + await read_rest(again)
            assert whole == b"".join(b"%d\n" % n for n in range(1, 300001))[-256 * KIB :]
            assert again.exit == TerminalExit(4, None)
        finally:
            await other.close()

    run(hold, work)


def test_two_clients_see_the_same(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        other = hold.client()
        try:
            terminal = await client.create_terminal([*SHELL, "stty -opost; read x; seq 100000"])
            same = await other.attach_terminal(terminal.id)
            await terminal.write(b"\n")
            first, second = await asyncio.gather(read_rest(terminal), read_rest(same))
            assert first == second
            assert first.endswith(b"\n100000\n")
        finally:
            await other.close()

    run(hold, work)


def test_input_waits_for_a_program_that_does_not_read_and_is_limited(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal(
            [*SHELL, "stty raw -echo; echo ready; read x < /dev/null; exec sleep 1000"]
        )
        await read_until(terminal, b"ready")
        writes = [asyncio.ensure_future(terminal.write(b"x" * 32 * KIB)) for _ in range(40)]
        done, waiting = await asyncio.wait(writes, timeout=3)
        assert 1 <= len(done) <= 10
        assert {type(each.exception()) for each in done} <= {InputFull, type(None)}
        assert waiting
        await terminal.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(each) for each in results} == {TerminalEnded}

    run(hold, work)


def test_a_mebibyte_of_input_arrives_whole(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        size = 1024 * KIB
        script = f"stty raw -echo; echo ready; head -c {size} | sha256sum"
        terminal = await client.create_terminal([*SHELL, script])
        await read_until(terminal, b"ready")
        data = os.urandom(size)
        await terminal.write(data)
        import hashlib

        assert hashlib.sha256(data).hexdigest().encode() in await read_rest(terminal)

    run(hold, work)


@needs_cgroups
def test_close_kills_all_of_it_also_what_left_the_session(hold: LocalHold, tmp_path: Path) -> None:
    async def work(client: HoldClient) -> None:
        pid = tmp_path / "pid"
        deep = f"trap '' HUP TERM; setsid setsid sh -c 'echo $$ > {pid}; exec sleep 1000' & sleep 1000"
        terminal = await client.create_terminal([*SHELL, deep])
        await wait_for(lambda: pid.exists() and pid.read_text() != "")
        assert is_running(int(pid.read_text()))
        await terminal.close()
        await wait_for(lambda: not is_running(int(pid.read_text())))
        assert await client.list_terminals() == []
        with pytest.raises(TerminalNotFound):
            await client.attach_terminal(terminal.id)
        await terminal.close()

    run(hold, work)


def test_background_processes_live_on_after_an_ordinary_end_and_hold_nothing_up(
    hold: LocalHold, tmp_path: Path
) -> None:
    async def work(client: HoldClient) -> None:
        pid = tmp_path / "pid"
        script = f"trap '' HUP; sleep 1000 & echo $! > {pid}; exit 0"
        terminal = await client.create_terminal([*SHELL, script])
        await read_rest(terminal)
        assert terminal.exit == TerminalExit(0, None)
        await terminal.close()
        assert is_running(int(pid.read_text()))
        os.kill(int(pid.read_text()), signal.SIGKILL)

    run(hold, work)


def test_a_background_process_that_prints_for_ever_does_not_delay_the_end(hold: LocalHold, tmp_path: Path) -> None:
    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal([*SHELL, "trap '' HUP; yes & sleep 0.2; exit 5"])
        await read_rest(terminal)
        assert terminal.exit == TerminalExit(5, None)

    run(hold, work)


def test_an_ended_terminal_stays_until_it_is_closed(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal([*SHELL, "echo last words"])
        await terminal.wait()
        with pytest.raises(TerminalEnded):
            await terminal.write(b"x")
        await client.close()
        other = hold.client()
        again = await other.attach_terminal(terminal.id)
        assert await read_rest(again) == b"last words\r\n"
        await again.close()
        assert await other.list_terminals() == []
        await other.close()

    run(hold, work)


def test_terminals_are_limited(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        terminals = [await client.create_terminal(["sleep", "1000"]) for _ in range(MAX_TERMINALS)]
        with pytest.raises(TerminalLimit):
            await client.create_terminal(["true"])
        await terminals[0].close()
        await client.create_terminal(["true"])

    run(hold, work)


def test_another_process_of_the_guest_has_other_terminals(hold: LocalHold) -> None:
    async def work(client: HoldClient) -> None:
        terminal = await client.create_terminal(["sleep", "1000"])
        hold.close()
        hold.start()
        with pytest.raises(TerminalNotFound):
            await terminal.read()
        fresh = await client.create_terminal(["sleep", "1000"])
        assert fresh.id == terminal.id + 1  # as if it had gone on
        with pytest.raises(TerminalNotFound):
            await terminal.write(b"x")
        hold.close()
        (hold.folder / "socket").unlink()
        hold.options = ("1", "0")  # refused: none starts
        with pytest.raises(GuestUnreachable):
            await fresh.read()
        hold.options = (str(256 * KIB), "0")
        hold.start()

    run(hold, work)
