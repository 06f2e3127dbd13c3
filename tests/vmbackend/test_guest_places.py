"""The places for commands of a guest: who waits for one has a clock that stands still, and does not wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from vmbackend.errors import BackendError, DeadlineExceeded, GuestBusy, GuestCommandInvalid, GuestUnreachable
from vmbackend.guest import deadlines
from vmbackend.guest.commands import start_error
from vmbackend.guest.deadlines import acquire_place, call_deadline
from vmbackend.guest.held import HeldRunner
from vmbackend.guest.hold.command import CommandStart

CALL, WAIT = 0.3, 0.9


async def taken_for(seconds: float) -> asyncio.Semaphore:
    """One place, which somebody has for so long."""
    places = asyncio.Semaphore(1)
    await places.acquire()
    asyncio.get_running_loop().call_later(seconds, places.release)
    return places


def test_the_wait_for_a_place_is_no_part_of_a_calls_time() -> None:
    async def work() -> None:
        places = await taken_for(WAIT)
        async with call_deadline(CALL):
            await acquire_place(places)

    asyncio.run(work())


def test_what_a_call_does_before_and_after_its_wait_counts() -> None:
    async def work() -> None:
        places = await taken_for(WAIT)
        async with call_deadline(CALL):
            await asyncio.sleep(CALL * 0.7)
            await acquire_place(places)
            await asyncio.sleep(CALL * 0.7)

    with pytest.raises(DeadlineExceeded):
        asyncio.run(work())


def test_several_waits_of_one_call_at_once_are_one() -> None:
    async def work() -> None:
        one, other = await taken_for(WAIT), await taken_for(WAIT)
        async with call_deadline(CALL):
            await asyncio.gather(acquire_place(one), acquire_place(other))
            await asyncio.sleep(CALL * 2)

    with pytest.raises(DeadlineExceeded):
        asyncio.run(work())


def test_a_wait_that_outlives_its_call_harms_nothing() -> None:
    async def work() -> None:
        places = await taken_for(WAIT)
        async with call_deadline(CALL):
            waiting = asyncio.ensure_future(acquire_place(places))
            await asyncio.sleep(0)
        await waiting

    asyncio.run(work())


def test_no_place_for_long_is_a_busy_guest_whose_places_are_all_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "PLACE_SECONDS", CALL)

    async def work() -> None:
        places = await taken_for(WAIT)
        with pytest.raises(GuestBusy):
            async with call_deadline(60):
                await acquire_place(places)
        await asyncio.sleep(WAIT)
        assert not places.locked()

    asyncio.run(work())


def test_a_command_that_waited_for_its_place_has_not_run_out_of_time() -> None:
    """Its own exit code is 124, and it took less than its timeout."""

    class Client:
        class commands:
            @staticmethod
            async def run(*_: object, **__: object) -> int:
                return 124

    async def work() -> None:
        places = await taken_for(WAIT)

        class Place:
            __aenter__: Callable[..., Awaitable[None]] = lambda self: acquire_place(places)

            async def __aexit__(self, *_: object) -> None:
                places.release()

        runner = HeldRunner(lambda _: Client(), Place)  # type: ignore[arg-type,return-value]
        result = await runner.run(CommandStart(["exit"], {}, None, None), CALL, 1024)
        assert (result.exit_code, result.timed_out) == (124, False)
        assert result.duration_ms < CALL * 1000

    asyncio.run(work())


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        ("cannot fork: Resource temporarily unavailable", GuestUnreachable),
        ("out of memory", GuestUnreachable),
        ("cannot start git: No such file or directory", GuestCommandInvalid),
        ("cannot enter /a: out of memory/b: No such file or directory", GuestCommandInvalid),
    ],
)
def test_what_the_machine_has_too_little_of_is_no_fault_of_the_command(failure: str, kind: type[BackendError]) -> None:
    assert type(start_error(failure)) is kind
