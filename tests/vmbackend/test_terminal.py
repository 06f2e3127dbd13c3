"""The contract of guest terminals: over SSH to a local dropbear with the kit's helper, and the fake one."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from vmbackend.errors import GuestCommandInvalid, GuestUnreachable
from vmbackend.fake.driver import FakeDriver
from vmbackend.guest.session import GuestSession
from vmbackend.guest.terminal_contract import Terminal, TerminalExit

from .local_dropbear import LocalGuest
from .test_guest_session import Guest, guest, helper, local
from .test_ssh_session import MIB, rss_bytes

__all__ = ["guest", "helper", "local"]


def on_terminal(
    guest: Guest, interact: Callable[[Terminal], Awaitable[Any]], command: list[str] | None, **options: Any
) -> Any:
    """Open a terminal, run `interact` with it, close it."""

    async def body(session: GuestSession) -> Any:
        terminal = await session.open_terminal(command, **options)
        try:
            return await interact(terminal)
        finally:
            await terminal.close()

    return guest.call(body)


async def read_until(terminal: Terminal, wanted: bytes) -> bytes:
    output = b""
    while wanted not in output:
        block = await terminal.read()
        assert block, output
        output += block
    return output


async def read_all(terminal: Terminal) -> tuple[bytes, TerminalExit]:
    output = b""
    while block := await terminal.read():
        output += block
    return output, await terminal.wait()


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def test_size_environment_directory_and_a_device(guest: Guest):
    guest.write("there/x", b"")
    script = 'stty size; tty; echo "$TERM $A"; pwd; stty -a | grep -o " echo "'
    output, end = on_terminal(
        guest, read_all, shell(script), cols=91, rows=17, env={"A": "1 2='\x03ü"}, working_dir=f"{guest.inside}/there",
        user="root",
    )  # fmt: skip
    lines = output.split(b"\r\n")
    assert lines[0] == b"17 91"
    assert lines[1].startswith(b"/dev/pts/")
    assert lines[2] == "xterm-256color 1 2='\x03ü".encode()
    assert lines[3].endswith(b"/there")
    assert lines[4] == b" echo "
    assert end == TerminalExit(0, None)


def test_a_resize_sends_sigwinch(guest: Guest):
    async def interact(terminal: Terminal) -> bytes:
        await read_until(terminal, b"ready")
        await terminal.resize(77, 11)
        return (await read_all(terminal))[0]

    script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.1; done"
    assert b"11 77" in on_terminal(guest, interact, shell(script))


def test_control_c_ends_the_foreground_job_and_not_the_shell(guest: Guest):
    async def interact(terminal: Terminal) -> tuple[bytes, TerminalExit]:
        await terminal.write(b"echo sta''rted; sleep 300\n")
        await read_until(terminal, b"started")
        await asyncio.sleep(0.5)
        await terminal.write(b"\x03")
        await terminal.write(b"echo al''ive; exit 7\n")
        return await read_all(terminal)

    output, end = on_terminal(guest, interact, ["sh", "-i"])
    assert b"alive" in output
    assert end == TerminalExit(7, None)


def test_control_c_ends_the_command_itself(guest: Guest):
    async def interact(terminal: Terminal) -> TerminalExit:
        await asyncio.sleep(0.5)
        await terminal.write(b"\x03")
        return (await read_all(terminal))[1]

    assert on_terminal(guest, interact, ["sleep", "300"]) == TerminalExit(None, "SIGINT")


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("exit 7", TerminalExit(7, None)),
        ("exit 137", TerminalExit(137, None)),
        ("kill -KILL $$", TerminalExit(None, "SIGKILL")),
        ("kill -SEGV $$", TerminalExit(None, "SIGSEGV")),
    ],
)
def test_the_terminal_reports_how_the_command_ended(guest: Guest, script: str, end: TerminalExit):
    assert on_terminal(guest, read_all, shell(script))[1] == end


def test_a_burst_arrives_complete_at_a_slow_reader(guest: Guest):
    data = os.urandom(MIB)
    guest.write("data", data)
    script = f"stty raw; for i in 1 2 3 4 5 6 7 8; do cat {guest.outside}/data; done"

    async def interact(terminal: Terminal) -> tuple[int, str, int]:
        digest, size = hashlib.sha256(), 0
        before = rss_bytes()
        await asyncio.sleep(1)
        while block := await terminal.read():
            assert len(block) <= 64 * 1024
            digest.update(block)
            size += len(block)
        return size, digest.hexdigest(), rss_bytes() - before

    size, digest, grown = on_terminal(guest, interact, shell(script))
    assert size == 8 * MIB
    assert digest == hashlib.sha256(data * 8).hexdigest()
    assert grown < 4 * MIB


def test_unread_output_blocks_the_command(guest: Guest):
    async def interact(terminal: Terminal) -> int:
        before = rss_bytes()
        await asyncio.sleep(2)
        return rss_bytes() - before

    assert on_terminal(guest, interact, ["cat", "/dev/zero"]) < 4 * MIB


def test_unread_terminal_input_blocks_the_writer(guest: Guest):
    async def interact(terminal: Terminal) -> tuple[bool, int]:
        await read_until(terminal, b"ready")
        data = b"x" * 16 * MIB
        before = rss_bytes()
        writing = asyncio.ensure_future(terminal.write(data))
        finished, _ = await asyncio.wait([writing], timeout=2)
        grown = rss_bytes() - before
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        return bool(finished), grown

    finished, grown = on_terminal(guest, interact, shell("stty raw -echo; echo ready; sleep 300"))
    assert not finished
    assert grown < 4 * MIB


def test_all_byte_values_pass_both_ways(guest: Guest):
    data = bytes(range(256)) * 4

    async def interact(terminal: Terminal) -> bytes:
        output = await read_until(terminal, b"ready\n")
        await terminal.write(data)
        while len(output) < len(b"ready\n") + len(data):
            output += await terminal.read()
        return output

    assert on_terminal(guest, interact, shell("stty raw -echo; echo ready; exec cat")) == b"ready\n" + data


def test_without_a_command_there_is_a_shell(guest: Guest):
    async def interact(terminal: Terminal) -> tuple[bytes, TerminalExit]:
        await terminal.write(b"echo $((6*7))-$-; exit 5\n")
        return await read_all(terminal)

    output, end = on_terminal(guest, interact, None)
    interactive = output.split(b"42-")[1].split(b"\r\n")[0]
    assert b"i" in interactive
    assert end == TerminalExit(5, None)


def test_closing_a_terminal_ends_its_foreground_process_group(guest: Guest):
    marker = str(400 + os.getpid() / 10**6)

    async def interact(terminal: Terminal) -> TerminalExit:
        await read_until(terminal, b"ready")
        await terminal.close()
        await terminal.close()
        await terminal.write(b"late")
        await terminal.resize(80, 25)
        assert await terminal.read() == b""
        return await terminal.wait()

    end = on_terminal(guest, interact, shell(f"trap '' HUP; sleep {marker} & echo ready; sleep {marker}"))
    assert end == TerminalExit(None, None)
    deadline = time.monotonic() + 120
    while running(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running(marker) == []


def running(argument: str) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if place.read_bytes() == f"sleep\0{argument}\0".encode():
                found.append(place.parent.name)
    return found


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["no-such-program"], {}),
        (["/no/such/program"], {}),
        (["true"], {"working_dir": "/no/such/dir"}),
        (["true"], {"user": "no-such-user"}),
        (["tr\0ue"], {}),
        ([], {}),
    ],
)
def test_commands_that_cannot_be_started_are_refused(guest: Guest, command: list[str], options: dict[str, str]):
    with pytest.raises(GuestCommandInvalid):
        on_terminal(guest, read_all, command, **options)


def test_a_guest_that_disappears_ends_the_terminal(guest: Guest, request: pytest.FixtureRequest):
    over_ssh = "local" in request.fixturenames or guest.address.host_key != ""

    def disconnect() -> None:
        if over_ssh:
            running_guest: LocalGuest = request.getfixturevalue("local")
            running_guest.drop_connections()
        else:
            driver = FakeDriver(guest.outside.parents[2])
            driver.kill("m")

    async def interact(terminal: Terminal) -> bytes:
        await read_until(terminal, b"ready")
        asyncio.get_running_loop().call_later(0.3, disconnect)
        async with asyncio.timeout(20):
            with suppress(GuestUnreachable):
                while await terminal.read():
                    pass
            with suppress(GuestUnreachable):
                await terminal.write(b"x")
            with pytest.raises(GuestUnreachable):
                await asyncio.wait_for(expect_no_exit_code(terminal), 10)
        return b"ended"

    assert on_terminal(guest, interact, shell("echo ready; sleep 300")) == b"ended"


async def expect_no_exit_code(terminal: Terminal) -> None:
    if await terminal.wait() == TerminalExit(None, None):
        raise GuestUnreachable("disconnected")


def test_several_terminals_and_commands_at_once(guest: Guest):
    async def body(session: GuestSession) -> list[bytes]:
        terminals = [await session.open_terminal(["cat"]) for _ in range(4)]
        assert (await session.execute(["echo", "other"])).stdout == b"other\n"
        output = []
        for number, terminal in enumerate(terminals):
            await terminal.write(b"%d\n" % number)
            output.append(await read_until(terminal, b"\r\n%d\r\n" % number))
        await session.close()
        await terminals[0].write(b"still\n")
        await read_until(terminals[0], b"still")
        for terminal in terminals:
            await terminal.close()
        return output

    assert guest.call(body) == [b"%d\r\n%d\r\n" % (n, n) for n in range(4)]
