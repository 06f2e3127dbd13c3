"""The client of the hold with a guest that sends anything."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.vmbackend.hold_factory import read_rest
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.lying_guest import WELCOME, LyingGuest, run, with_guests
from vmbackend.errors import BackendError, GuestCommandInvalid, GuestUnreachable
from vmbackend.guest.connection import Connection, ConnectionSettings
from vmbackend.guest.hold.client import HoldSettings
from vmbackend.guest.hold.errors import HoldUnsupported
from vmbackend.guest.hold.frames import MAX_FRAME, Answer, Failure, Request, number
from vmbackend.guest.hold_channel import SSHTransport
from vmbackend.guest.session import GuestAddress
from vmbackend.guest.ssh_limits import CPU_BURST_SECONDS, CPU_SHARE, CpuBudget, TotalBudget

needs_tools = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
MIB = 1 << 20


@pytest.mark.parametrize(
    "said",
    [
        b"\xff" * 64,
        bytes(64),
        b"",
        struct.pack(">IBI", MAX_FRAME + 1, Answer.WELCOME, 0),
        struct.pack(">IBI", 8, Answer.WELCOME, 0) + b"HOL",
        WELCOME.replace(b"\0\1", b"\0\2"),
        WELCOME[:3] + b"\x18" + WELCOME[4:] + b"x",
        struct.pack(">IBI", 5, Answer.DONE, 0),
    ],
)
def test_garbage_at_the_beginning_is_an_unreachable_guest(said: bytes) -> None:
    async def script(guest: LyingGuest) -> None:
        guest.say(said)
        guest.say(b"")

    async def work() -> None:
        client = with_guests(script)
        with pytest.raises(GuestUnreachable):
            await client.list_terminals()
        await client.close()

    run(work())


def test_another_version_is_said_so() -> None:
    async def script(guest: LyingGuest) -> None:
        guest.answer(Answer.FAILED, 0, number(Failure.BAD_VERSION, 2), b"version 2\x1b[2J")

    async def work() -> None:
        client = with_guests(script)
        with pytest.raises(HoldUnsupported, match=r"version 2\?\[2J"):
            await client.list_terminals()

    run(work())


@pytest.mark.parametrize(
    "lie",
    [
        (200, 1, b""),
        (Answer.OUTPUT, 1, number(1, 8) + b"a"),  # not where it goes on
        (Answer.OUTPUT, 1, number(0, 8)),  # nothing
        (Answer.OUTPUT, 1, b"\0"),
        (Answer.EXITED, 1, number(0, 1) + number(0, 4) + number(5, 8)),  # before all output
        (Answer.EXITED, 1, number(0, 1) + number(0, 4) + number(0, 8) + b"x"),
        (Answer.EVENT, 1, b""),
        (Answer.BEHIND, 1, b"x"),
        (Answer.DONE, 2, b"not asked for a list"),
    ],
)
def test_a_lie_costs_the_connection_and_the_next_one_goes_on(lie: tuple[int, int, bytes]) -> None:
    async def lying(guest: LyingGuest) -> None:
        await guest.welcome()
        _, about, _ = await guest.hear()
        guest.answer(Answer.DONE, about, number(1, 4))
        await guest.hear()
        guest.answer(*lie)
        await asyncio.sleep(30)

    async def honest(guest: LyingGuest) -> None:
        await guest.welcome()
        while True:
            kind, about, _ = await guest.hear()
            if kind == Request.LIST:
                guest.answer(Answer.DONE, about, number(0, 4))
            elif kind == Request.ATTACH:
                guest.answer(Answer.DONE, about, number(0, 8), number(80, 2), number(24, 2))
                guest.answer(Answer.OUTPUT, 1, number(0, 8), b"true")
                guest.answer(Answer.EXITED, 1, number(1, 1), number(999, 4), number(4, 8))

    async def work() -> None:
        client = with_guests(lying, honest)
        terminal = await client.create_terminal(["true"])
        with pytest.raises(GuestUnreachable):
            await client.list_terminals()
        assert await client.list_terminals() == []
        assert await read_rest(terminal) == b"true"
        assert terminal.exit is not None
        assert terminal.exit.signal == "SIGKILL"
        await client.close()

    run(work())


def test_output_beyond_the_window_is_refused_and_what_is_within_is_few_pieces() -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        _, about, body = await guest.hear()
        window = int.from_bytes(body[4:8], "big")
        guest.answer(Answer.DONE, about, number(1, 4))
        for at in range(window):
            guest.answer(Answer.OUTPUT, 1, number(at, 8), b"x")
        await asyncio.sleep(0)
        guest.answer(Answer.OUTPUT, 1, number(window, 8), b"x")

    async def work() -> None:
        client = with_guests(script)
        terminal = await client.create_terminal(["true"])
        assert client._link is not None
        await client._link.lost
        assert len(terminal._pieces) <= 8
        while terminal.offset < 128 * 1024:
            await terminal.read()
        with pytest.raises(GuestUnreachable):
            await terminal.read()

    run(work())


def listed(id: int, start: int, end: int) -> bytes:
    """A list with one terminal that runs."""
    size = number(80, 2) + number(24, 2)
    return number(1, 4) + number(id, 4) + size + number(start, 8) + number(end, 8) + bytes(6)


@pytest.mark.parametrize(
    "body",
    [
        number(65, 4),
        number(1, 4) + bytes(31) + b"\0",
        number(1, 4),
        number(2**32 - 1, 4),
        listed(0, 0, 0),
        listed(256, 0, 0),
        listed(1, 1, 0),
        listed(1, 0, 2**63),
        listed(1, 2**64 - 1, 2**64 - 1),
    ],
)
def test_a_list_that_lies_is_refused(body: bytes) -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        _, about, _ = await guest.hear()
        guest.answer(Answer.DONE, about, body)
        await asyncio.sleep(30)

    async def work() -> None:
        client = with_guests(script)
        with pytest.raises(GuestUnreachable):
            await client.list_terminals()
        await client.close()

    run(work())


@pytest.mark.parametrize("body", [b"", number(0, 7), number(0, 8) + b"\x1b[?1h" * 1000, number(2**63, 8)])
def test_modes_that_are_none_are_refused(body: bytes) -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        _, about, _ = await guest.hear()
        guest.answer(Answer.DONE, about, number(1, 4))
        _, about, _ = await guest.hear()
        guest.answer(Answer.DONE, about, body)
        await asyncio.sleep(30)

    async def work() -> None:
        client = with_guests(script)
        terminal = await client.create_terminal(["true"])
        with pytest.raises(GuestUnreachable):
            await terminal.modes()
        await client.close()

    run(work())


def test_an_offset_that_no_output_reaches_costs_the_connection() -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        _, about, _ = await guest.hear()
        guest.answer(Answer.DONE, about, listed(1, 0, 0))
        _, about, _ = await guest.hear()
        guest.answer(Answer.DONE, about, number(2**64 - 2, 8), number(80, 2), number(24, 2))
        guest.answer(Answer.OUTPUT, 1, number(2**64 - 2, 8), b"xx")
        await asyncio.sleep(30)

    async def work() -> None:
        client = with_guests(script)
        terminal = await client.attach_terminal(1)
        with pytest.raises(GuestUnreachable):
            await terminal.read()
        await client.close()

    run(work())


def test_many_frames_at_once_give_others_their_turns_and_are_charged() -> None:
    blocks = 50
    guests: list[LyingGuest] = []

    async def script(guest: LyingGuest) -> None:
        guests.append(guest)
        await guest.welcome()
        _, about, _ = await guest.hear()
        for _ in range(blocks):  # to requests that were never made
            guest.say(struct.pack(">IBI", 5, Answer.DONE, 12345) * 3000)
        guest.answer(Answer.DONE, about, number(0, 4))
        await asyncio.sleep(30)

    async def work() -> None:
        client = with_guests(script)
        asked = asyncio.ensure_future(client.list_terminals())
        turns = 0
        while not asked.done():
            await asyncio.sleep(0)
            turns += 1
        assert await asked == []
        assert turns > blocks
        assert guests[0].charged > 0
        await client.close()

    run(work())


def test_a_guest_answers_nothing_more_while_it_has_to_wait() -> None:
    budget = CpuBudget(TotalBudget(lambda: 0.0))
    address = GuestAddress("m", "10.0.0.2", 22, "none")
    connection = Connection(address, Path("none"), ConnectionSettings(), budget=budget)
    transport = SSHTransport(connection, Mock())
    assert transport.spend_time(CPU_BURST_SECONDS) == 0
    assert transport.spend_time(0.01) == pytest.approx(0.01 / CPU_SHARE)


def test_a_guest_that_answers_nothing_is_given_up() -> None:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        await asyncio.sleep(30)

    async def work() -> None:
        client = with_guests(script)
        client._settings = HoldSettings(timeout=0.2)
        with pytest.raises(GuestUnreachable):
            await client.create_terminal(["true"])
        assert client._link is not None
        assert client._link.lost.done()
        await client.close()

    run(work())


def test_a_hello_without_an_end_is_given_up_and_the_next_connection_is_used() -> None:
    async def endless(guest: LyingGuest) -> None:
        guest.say(struct.pack(">IBI", MAX_FRAME, Answer.WELCOME, 0))
        while True:
            guest.say(b"x")
            await asyncio.sleep(0.01)  # the frame would take five minutes

    async def honest(guest: LyingGuest) -> None:
        await guest.welcome()
        _, about, _ = await guest.hear()
        guest.answer(Answer.DONE, about, number(0, 4))

    async def work() -> None:
        client = with_guests(endless, honest)
        client._settings = HoldSettings(timeout=0.2)
        with pytest.raises(GuestUnreachable):
            await client.list_terminals()
        client._settings = HoldSettings(timeout=20.0)
        assert await client.list_terminals() == []
        await client.close()

    run(work())


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": ["a\0b"]},
        {"command": [""]},
        {"command": ["x" * 200_000]},
        {"command": ["x"] * 5000},
        {"working_dir": "/" * 5000},
        {"env": {"": "x"}},
        {"user": "\ud800"},
    ],
)
def test_what_no_kernel_would_start_is_not_sent(arguments: dict[str, object]) -> None:
    async def work() -> None:
        client = with_guests()
        with pytest.raises(GuestCommandInvalid):
            await client.create_terminal(**{"command": ["true"], **arguments})  # type: ignore[arg-type]

    run(work())


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_raise_nothing_but_errors_of_the_platform(seed: int) -> None:
    chance = random.Random(seed)

    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        while True:
            _, about, _ = await guest.hear()
            for _ in range(20):
                kind = chance.choice([*range(128, 136), 0])
                guest.answer(kind, chance.choice([about, 1, 7]), chance.randbytes(chance.randrange(40)))

    async def work() -> None:
        client = with_guests(*[script] * 5)
        for _ in range(10):
            try:
                terminal = await client.create_terminal(["true"])
                await asyncio.wait_for(terminal.read(), 0.2)
            except (BackendError, TimeoutError):
                pass
        await client.close()

    run(work())
