"""Connections to the guest's hold come and go; its terminals do not notice."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.vmbackend.hold_factory import LocalHold, RawPeer, compile_hold, end_program, read_rest, read_until
from tests.vmbackend.local_dropbear import LocalGuest, missing_requirement
from vmbackend.errors import GuestUnreachable
from vmbackend.guest.hold.client import HoldSettings
from vmbackend.guest.hold.frames import Answer, Request, number, text, texts
from vmbackend.guest.hold.terminal_fields import TerminalExit
from vmbackend.guest.ssh import SSHGuestSession

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")

MIB = 1 << 20
KILLS = 50


def random_file(path: Path, size: int) -> str:
    """Write random bytes; returns their hash."""
    sum_of_all = hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(size // MIB):
            block = os.urandom(MIB)
            file.write(block)
            sum_of_all.update(block)
    return sum_of_all.hexdigest()


def test_no_byte_is_lost_or_doubled_by_fifty_killed_connections(hold: LocalHold, tmp_path: Path) -> None:
    size = 100 * MIB
    wanted = random_file(tmp_path / "data", size)

    async def work() -> None:
        client = hold.client()
        terminal = await client.create_terminal(["sh", "-c", f"stty raw; exec cat {tmp_path / 'data'}"])
        sum_of_all, at, kills = hashlib.sha256(), 0, 0
        while True:
            try:
                offset, data = await terminal.read()
            except GuestUnreachable:
                continue  # killed while it connected
            assert offset == at
            if not data:
                break
            sum_of_all.update(data)
            at += len(data)
            if kills < KILLS and at > size // KILLS * kills:
                hold.cut()
                kills += 1
        assert (at, kills, terminal.exit) == (size, KILLS, TerminalExit(0, None))
        assert sum_of_all.hexdigest() == wanted
        assert len(hold.attached) > KILLS
        await client.close()

    asyncio.run(asyncio.wait_for(work(), 580))


def test_another_client_goes_on_where_a_killed_one_was(hold: LocalHold) -> None:
    async def work() -> None:
        first = hold.client()
        terminal = await first.create_terminal(["sh", "-c", "stty -opost; seq 500000"])
        seen = b""
        while len(seen) < MIB:
            seen += (await terminal.read())[1]
        hold.cut()  # nothing of this client remains but what it has read
        second = hold.client()
        again = await second.attach_terminal(terminal.id, terminal.offset)
        seen += await read_rest(again)
        assert seen == b"".join(b"%d\n" % number for number in range(1, 500001))
        await first.close()
        await second.close()

    asyncio.run(asyncio.wait_for(work(), 120))


def test_a_client_that_stays_away_holds_the_program_up_for_a_while_only(hold_program: Path, tmp_path: Path) -> None:
    hold = LocalHold(hold_program, tmp_path / "hold", linger=1.0)

    async def work() -> None:
        first, second = hold.client(), hold.client()
        terminal = await first.create_terminal(["yes"])
        await terminal.read()
        hold.cut()
        while (entry := (await second.list_terminals())[0]).start == 0:
            await asyncio.sleep(0.05)
        assert entry.exit is None
        at, _ = await terminal.read()
        assert at > 0  # the rest before it was forgotten
        await first.close()
        await second.close()

    try:
        asyncio.run(asyncio.wait_for(work(), 120))
    finally:
        hold.close()


def test_an_ended_terminal_that_no_client_closes_is_forgotten(tmp_path: Path) -> None:
    program = tmp_path / "guest"
    compile_hold(program, "-DKEPT_MS=500")
    hold = LocalHold(program, tmp_path / "hold")

    async def work() -> None:
        client = hold.client()
        ended = await client.create_terminal(["true"])
        running = await client.create_terminal(["sleep", "1000"])
        await ended.wait()
        while [each.id for each in await client.list_terminals()] != [running.id]:
            await asyncio.sleep(0.05)
        await client.close()

    try:
        asyncio.run(asyncio.wait_for(work(), 120))
    finally:
        hold.close()


def test_a_client_that_leaves_holds_nothing_up(hold: LocalHold) -> None:
    async def work() -> None:
        first, second = hold.client(), hold.client()
        terminal = await first.create_terminal(["yes"])
        await terminal.read()
        await terminal.detach()
        while (await second.list_terminals())[0].start == 0:
            await asyncio.sleep(0.05)
        at, data = await terminal.read()
        assert at > 0
        assert data.strip(b"y\r\n") == b""
        await first.close()
        await second.close()

    asyncio.run(asyncio.wait_for(work(), 120))


def test_a_connection_whose_end_was_not_noticed_is_replaced_by_the_same_clients_next(hold: LocalHold) -> None:
    with RawPeer(hold) as first, RawPeer(hold) as second:
        first.greet(b"a" * 16)
        command = texts(["yes"])
        first.send(
            Request.CREATE, 1, number(80, 2), number(24, 2), number(1000, 4), text(""), text(""), command, texts([])
        )
        assert first.receive()[:2] == (Answer.DONE, 1)
        # It reads no more: the program waits for it.
        second.greet(b"a" * 16)
        assert first.wait_end() == 0
        second.send(Request.ATTACH, 1, number(1, 4), number(0, 8), number(2**32 - 1, 4))
        assert second.receive()[:2] == (Answer.DONE, 1)
        for _at in range(0, MIB, 1000):
            kind, _, body = second.receive()
            assert kind == Answer.OUTPUT
            second.send(Request.CREDIT, 0, number(1, 4), body[:8], number(2**32 - 1, 4))


def test_requests_that_wait_fail_with_the_connection_and_the_next_ones_do_not(hold: LocalHold) -> None:
    async def work() -> None:
        client = hold.client()
        terminal = await client.create_terminal(["sh", "-c", "stty raw -echo; echo ready; exec sleep 1000"])
        await read_until(terminal, b"ready")
        waiting = asyncio.ensure_future(terminal.write(b"x" * 64 * 1024))
        reading = asyncio.ensure_future(terminal.read())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        hold.cut()
        with pytest.raises(GuestUnreachable):
            await waiting
        assert len(await client.list_terminals()) == 1
        assert await terminal.resize(80, 20) == (80, 20)
        assert not reading.done()
        await terminal.close()
        await client.close()
        with pytest.raises(GuestUnreachable):
            await reading

    asyncio.run(asyncio.wait_for(work(), 120))


def test_it_is_started_on_demand_and_once(hold_program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "demand"
    command = [str(hold_program), "attach", str(folder), "65536", "1000"]
    attached = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(8)
    ]
    hello = bytes.fromhex("0000001b0100000000") + b"HOLD\0\1"
    instances = set()
    try:
        for number, process in enumerate(attached):
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(hello + bytes([number]) * 16)
            process.stdin.flush()
            answer = process.stdout.read(27)
            assert answer[9:15] == b"HOLD\0\1"
            assert answer[23:] == (65536).to_bytes(4, "big")
            instances.add(answer[15:23])
        assert len(instances) == 1
        found = [pid for pid in running_holds() if hold_program == Path(f"/proc/{pid}/exe").readlink()]
        assert len(found) == 1
        # It keeps nothing of the connection that it was started by open, and outlives it.
        attached[0].kill()
        attached[0].communicate(timeout=30)
        assert Path(f"/proc/{found[0]}").exists()
        os.kill(found[0], signal.SIGKILL)
        for process in attached[1:]:
            assert process.wait(timeout=30) == 0
    finally:
        for pid in running_holds():
            if hold_program == Path(f"/proc/{pid}/exe").readlink():
                os.kill(pid, signal.SIGKILL)
        for process in attached:
            process.kill()
            process.communicate()


def running_holds() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"guest", b"hold"]:
            found.append(int(path.parent.name))
    return found


def test_the_guest_keeps_as_much_output_as_the_platform_says_whatever_starts_the_hold(
    hold_program: Path, tmp_path: Path
) -> None:
    guest = LocalGuest(tmp_path, hold_program)
    kit = replace(guest.kit, hold=str(tmp_path / "hold"))
    session = SSHGuestSession(guest.address, guest.private_key, kit=kit, terminal_buffer=300_000)

    async def work() -> None:
        assert (await session.execute_held("true")).exit_code == 0
        client = session.open_hold()
        assert (await client.connect_guest()).buffer_size == 300_000
        await client.close()
        await session.close()

    try:
        asyncio.run(asyncio.wait_for(work(), 120))
    finally:
        end_program(hold_program)
        guest.stop()


def test_idle_terminals_cost_little_memory(hold: LocalHold) -> None:
    async def work() -> None:
        client = hold.client(HoldSettings(timeout=60))
        await client.create_terminal(["sleep", "1000"])
        before = hold.memory()
        for _ in range(63):
            await client.create_terminal(["sleep", "1000"])
        assert hold.memory() - before < 4 * MIB
        await client.close()

    asyncio.run(asyncio.wait_for(work(), 120))
