"""Commands through a hold that sends anything, and a hold that gets any requests for commands."""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import suppress

import pytest

from tests.vmbackend.hold_factory import LocalHold, RawPeer
from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.lying_guest import LyingGuest, run, with_guests
from tests.vmbackend.test_hold_commands import command, groups_of, run_frame
from vmbackend.errors import GuestUnreachable
from vmbackend.guest.hold.command import NotStarted
from vmbackend.guest.hold.errors import HoldUnsupported
from vmbackend.guest.hold.frames import Answer, Failure, Request, number

MIB = 1 << 20


class Heard:
    """How often a guest was asked for what."""

    def __init__(self) -> None:
        self.kinds: list[int] = []

    async def next(self, guest: LyingGuest) -> tuple[int, int, bytes]:
        """The next request that is no list, which is answered."""
        while True:
            kind, about, body = await guest.hear()
            self.kinds.append(kind)
            if kind != Request.LIST:
                return kind, about, body
            guest.answer(Answer.DONE, about, number(0, 4))


def refusing(heard: Heard, code: Failure) -> object:
    async def script(guest: LyingGuest) -> None:
        await guest.welcome()
        while True:
            _, about, _ = await heard.next(guest)
            guest.answer(Answer.FAILED, about, number(code, 2), b"no")

    return script


def test_a_hold_that_knows_no_commands_is_not_asked_again() -> None:
    heard = Heard()

    async def work() -> None:
        client = with_guests(refusing(heard, Failure.BAD_REQUEST))  # type: ignore[arg-type]
        for _ in range(3):
            with pytest.raises(NotStarted):
                await command(client, "true")
        assert heard.kinds.count(Request.RUN) == 1
        await client.close()

    run(work())


def test_a_full_hold_is_asked_again() -> None:
    heard = Heard()

    async def work() -> None:
        client = with_guests(refusing(heard, Failure.TOO_MANY))  # type: ignore[arg-type]
        for _ in range(3):
            with pytest.raises(NotStarted):
                await command(client, "true")
        assert heard.kinds.count(Request.RUN) == 3
        await client.close()

    run(work())


def test_a_hold_that_cannot_be_reached_has_not_started_the_command() -> None:
    async def work() -> None:
        client = with_guests()
        with pytest.raises(NotStarted):
            await command(client, "true")
        await client.close()

    run(work())


def test_a_lost_connection_is_found_before_the_command_is_sent_and_after_it_the_command_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was silent is asked before."""
    monkeypatch.setattr("vmbackend.guest.hold.client.QUIET_SECONDS", -1.0)
    heard = Heard()

    async def dead(guest: LyingGuest) -> None:
        await guest.welcome()
        await guest.hear()  # the list
        await guest.close()

    async def dies_later(guest: LyingGuest) -> None:
        await guest.welcome()
        await heard.next(guest)
        await guest.close()

    async def never(guest: LyingGuest) -> None:
        await guest.welcome()
        await heard.next(guest)

    async def work() -> None:
        client = with_guests(dead, dies_later, never)
        with pytest.raises(GuestUnreachable):
            await command(client, "true")
        assert heard.kinds.count(Request.RUN) == 1
        await client.close()

    run(work())


@pytest.mark.parametrize(
    "lie",
    [
        (Answer.WRITTEN, 1, b""),
        (Answer.WRITTEN, 1, b"\1"),  # nothing
        (Answer.WRITTEN, 1, b"\0a"),
        (Answer.WRITTEN, 1, b"\3a"),
        (Answer.WRITTEN, 1, b"\1" + b"a" * 101),  # more than was asked for
        (Answer.DONE, None, b""),
        (Answer.DONE, None, b"\0"),
        (Answer.DONE, None, b"\0\2"),
        (Answer.DONE, None, b"\0\0\0"),
        (Answer.FAILED, None, b"\0"),
    ],
)
def test_a_lie_about_a_command_costs_the_connection(lie: tuple[int, int | None, bytes]) -> None:
    heard = Heard()

    async def lying(guest: LyingGuest) -> None:
        await guest.welcome()
        _, about, _ = await heard.next(guest)
        guest.answer(lie[0], about if lie[1] is None else lie[1], lie[2])
        await asyncio.sleep(30)

    async def honest(guest: LyingGuest) -> None:
        await guest.welcome()
        _, about, body = await heard.next(guest)
        guest.answer(Answer.WRITTEN, 999, b"\1not asked for")  # of a command that was given up
        guest.answer(Answer.WRITTEN, int.from_bytes(body[:4], "big"), b"\2fine")
        guest.answer(Answer.DONE, about, b"\7\1")

    async def work() -> None:
        client = with_guests(lying, honest)
        with pytest.raises(GuestUnreachable):
            await command(client, "true", limit=100)
        ran = await command(client, "true", limit=100)
        assert (ran.code, ran.out, ran.err, ran.truncated) == (7, b"", b"fine", True)
        await client.close()

    run(work())


def test_a_refusal_after_output_does_not_count_as_one() -> None:
    heard = Heard()

    async def lying(guest: LyingGuest) -> None:
        await guest.welcome()
        _, about, body = await heard.next(guest)
        guest.answer(Answer.WRITTEN, int.from_bytes(body[:4], "big"), b"\1ran")
        guest.answer(Answer.FAILED, about, number(Failure.BAD_REQUEST, 2), b"no")
        await asyncio.sleep(30)

    async def work() -> None:
        client = with_guests(lying)
        with pytest.raises(GuestUnreachable):
            await command(client, "true")
        await client.close()

    run(work())


def test_another_version_has_not_started_the_command() -> None:
    async def old(guest: LyingGuest) -> None:
        guest.answer(Answer.FAILED, 0, number(Failure.BAD_VERSION, 2), b"version 0")

    async def work() -> None:
        client = with_guests(old)
        with pytest.raises(NotStarted) as caught:
            await command(client, "true")
        assert isinstance(caught.value.__cause__, HoldUnsupported)
        await client.close()

    run(work())


def random_frame(chance: random.Random) -> bytes:
    kind = chance.choice([Request.RUN, Request.RUN, Request.STOP])
    script = chance.choice(["true", "yes", "sleep 1000", "setsid sleep 1000", "seq 10000; exec sleep 1000"])
    parts = run_frame(script, chance.choice([0, 1, 4096, 2**32 - 1]), chance.randrange(4))
    if chance.random() < 0.3:
        parts = (number(chance.choice([0, 1, 2**32 - 1]), 4), *parts[1:])
    if chance.random() < 0.3:
        parts = parts[: chance.randrange(len(parts))]
    body = b"".join(parts) if kind == Request.RUN else number(chance.randrange(4), chance.choice([3, 4, 5]))
    return struct.pack(">IBI", len(body) + 5, kind, chance.randrange(2**32)) + body


@pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
@pytest.mark.parametrize("seed", range(2))
def test_random_requests_harm_no_other_client_and_leave_no_command(hold: LocalHold, seed: int) -> None:
    chance = random.Random(seed)
    with RawPeer(hold) as other:
        other.greet(b"o" * 16)
        for _ in range(10):
            with RawPeer(hold) as peer:
                peer.greet(chance.randbytes(16))
                data = b"".join(random_frame(chance) for _ in range(chance.randrange(100)))
                with suppress(BrokenPipeError):
                    peer.write(data[: chance.randrange(len(data) + 1)])
            other.send(Request.RUN, 1, *run_frame("echo fine"))
            while (answer := other.receive())[0] == Answer.FAILED:  # the limit, until the former client's are gone
                assert answer[2][:2] == number(Failure.TOO_MANY, 2)
                other.send(Request.RUN, 1, *run_frame("echo fine"))
            assert answer == (Answer.WRITTEN, 1, b"\1fine\n")
            assert other.receive() == (Answer.DONE, 1, b"\0\0")
        while [path for path in groups_of(hold) if (path / "cgroup.procs").read_text()]:
            other.send(Request.RUN, 1, *run_frame("true"))
            assert other.receive()[0] == Answer.DONE
    assert hold.memory() < 64 * MIB
    assert hold.process.poll() is None
