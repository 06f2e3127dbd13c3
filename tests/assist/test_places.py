"""Who is asked next where many wait: places of one event loop, without a database."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from assist.errors import RateLimitExceeded
from assist.places import Places


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Asking:
    """Calls that hold their turn until they are ended, in the order in which they were admitted."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.admitted: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def call(self, name: str) -> asyncio.Task[None]:
        """`name`: the account and a number."""
        self.ends[name] = asyncio.Event()
        return asyncio.ensure_future(self._hold(name))

    async def _hold(self, name: str) -> None:
        with self.places.reserved(name[0]) as place:
            async with self.places.turn(place):
                self.admitted.append(name)
                await self.ends[name].wait()


def test_of_those_that_wait_the_account_with_the_fewest_questions_is_next() -> None:
    async def scenario() -> list[str]:
        asking = Asking(Places(2, 10, 10))
        tasks = [asking.call(name) for name in ("a1", "a2", "a3", "a4", "b1")]
        await settle()
        for name in ("a1", "b1", "a2", "a3", "a4"):
            asking.ends[name].set()
            await settle()
        await asyncio.gather(*tasks)
        assert (asking.places.running, asking.places.waiting) == (0, 0)
        return asking.admitted

    assert asyncio.run(scenario()) == ["a1", "a2", "b1", "a3", "a4"]


def test_one_account_may_use_all_places_and_no_more() -> None:
    async def scenario() -> None:
        asking = Asking(Places(2, 3, 10))
        tasks = [asking.call(f"a{number}") for number in range(6)]
        await settle()
        assert (asking.places.running, asking.places.waiting) == (2, 3)
        with pytest.raises(RateLimitExceeded) as refused:
            await tasks[5]
        assert refused.value.headers["Retry-After"]
        for task in tasks[:5]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (asking.places.running, asking.places.waiting) == (0, 0)

    asyncio.run(scenario())


def test_no_account_keeps_another_one_out() -> None:
    """The newest of the one with more places is refused, until both have as many."""

    async def scenario() -> None:
        asking = Asking(Places(1, 3, 10))
        first = [asking.call(f"a{number}") for number in range(4)]
        await settle()
        second = [asking.call(f"b{number}") for number in range(3)]
        await settle()
        assert [task.done() for task in first] == [False, False, True, True]
        assert [task.done() for task in second] == [False, False, True]
        for task in (first[2], first[3], second[2]):
            assert isinstance(task.exception(), RateLimitExceeded)
        for end in asking.ends.values():
            end.set()
        await asyncio.gather(*first[:2], *second[:2])
        assert (asking.places.running, asking.places.waiting) == (0, 0)

    asyncio.run(scenario())


def test_a_wait_that_is_too_long_ends_and_leaves_nothing() -> None:
    async def scenario() -> None:
        asking = Asking(Places(1, 3, 0.05))
        first, second = asking.call("a1"), asking.call("b1")
        with pytest.raises(RateLimitExceeded):
            await second
        asking.ends["a1"].set()
        await first
        third = asking.call("b2")
        await settle()
        assert asking.admitted == ["a1", "b2"]
        third.cancel()
        await asyncio.gather(third, return_exceptions=True)
        assert (asking.places.running, asking.places.waiting) == (0, 0)

    asyncio.run(scenario())


def test_a_call_that_is_cancelled_as_it_is_admitted_gives_its_turn_on() -> None:
    async def scenario() -> None:
        asking = Asking(Places(1, 3, 10))
        tasks = [asking.call(name) for name in ("a1", "b1", "c1")]
        await settle()
        asking.ends["a1"].set()
        await asyncio.sleep(0)  # b1 is admitted, and has not run yet
        tasks[1].cancel()
        await settle()
        assert asking.admitted[-1] == "c1"
        asking.ends["c1"].set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (asking.places.running, asking.places.waiting) == (0, 0)

    asyncio.run(scenario())


def test_a_place_is_free_again_whatever_happens_in_it() -> None:
    places = Places(1, 0, 1)
    with suppress(ZeroDivisionError), places.reserved("a"):
        raise ZeroDivisionError
    with places.reserved("a"), pytest.raises(RateLimitExceeded), places.reserved("b"):
        pass
