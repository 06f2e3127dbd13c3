"""Limits of a process: how many questions it asks the model at once, and how many calls wait for that.

A place is taken at once or not at all: if too many calls wait, a call is refused before anything is counted. The next
waiting call is of the account with the fewest questions in progress; of that account, it is the oldest. If all places
are taken and another account has more of them, the newest waiting call of that account is refused instead, so that no
account keeps others out. Waiting costs a future, and no thread.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from django.conf import settings

from assist.errors import RateLimitExceeded

RETRY_SECONDS = 2
FULL = "The model has as many questions as it can take; try again later."
TOO_LONG = "The model was busy with other questions for too long; try again later."


@dataclass(eq=False, slots=True)
class Place:
    """Place of one call. `admitted` is set while the call waits for its turn. `is_present`: the place counts."""

    account_id: str
    is_present: bool = True
    admitted: asyncio.Future[None] | None = None


class Places:
    """Places of one event loop."""

    def __init__(self, concurrency: int, queue: int, queue_seconds: float) -> None:
        self._concurrency = concurrency
        self._most = concurrency + queue
        self._queue_seconds = queue_seconds
        self._present: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._waiting: list[Place] = []

    @property
    def running(self) -> int:
        return self._running.total()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @contextmanager
    def reserved(self, account_id: str) -> Iterator[Place]:
        """Yield a place, waiting or running, until the end. Raise RateLimitExceeded at once if there is none."""
        if self._present.total() >= self._most and not self._make_room(account_id):
            raise _refusal(FULL)
        place = Place(account_id)
        self._present[account_id] += 1
        try:
            yield place
        finally:
            self._leave(place)

    @asynccontextmanager
    async def turn(self, place: Place) -> AsyncIterator[None]:
        """Wait until the model may be asked. Raise RateLimitExceeded after the longest wait, or if this call was
        refused to make room for another account's.
        """
        await self._wait(place)
        try:
            yield
        finally:
            _subtract(self._running, place.account_id)
            self._admit()

    async def _wait(self, place: Place) -> None:
        place.admitted = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._admit()
        try:
            async with asyncio.timeout(self._queue_seconds):
                await place.admitted
        except TimeoutError as exc:
            self._withdraw(place)
            raise _refusal(TOO_LONG) from exc
        except asyncio.CancelledError:
            self._withdraw(place)
            raise

    def _withdraw(self, place: Place) -> None:
        """Give a place up. It may have been admitted or refused at that very moment."""
        if place in self._waiting:
            self._waiting.remove(place)
        elif place.is_present:
            _subtract(self._running, place.account_id)
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self._running.total() < self._concurrency:
            # `min` takes the first of equals, which is the oldest.
            place = min(self._waiting, key=lambda each: self._running[each.account_id])
            self._waiting.remove(place)
            self._running[place.account_id] += 1
            if place.admitted is not None and not place.admitted.done():
                place.admitted.set_result(None)

    def _make_room(self, account_id: str) -> bool:
        """Refuse the newest waiting call of the account with the most places, if that has two more than this one."""
        waiting = [each for each in self._waiting if each.admitted is not None and not each.admitted.done()]
        most = max((self._present[each.account_id] for each in waiting), default=0)
        if most < self._present[account_id] + 2:
            return False
        refused = next(each for each in reversed(waiting) if self._present[each.account_id] == most)
        self._waiting.remove(refused)
        self._leave(refused)
        if refused.admitted is not None:
            refused.admitted.set_exception(_refusal(FULL))
        return True

    def _leave(self, place: Place) -> None:
        if place.is_present:
            place.is_present = False
            _subtract(self._present, place.account_id)


def _refusal(message: str) -> RateLimitExceeded:
    return RateLimitExceeded(message, headers={"Retry-After": str(RETRY_SECONDS)})


def _subtract(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]


def model_places() -> Places:
    """Return the places of the running loop."""
    loop, env = asyncio.get_running_loop(), settings.ENV
    found = _places.get(loop)
    if found is None:
        found = _places[loop] = Places(env.assist_concurrency, env.assist_queue, env.assist_queue_seconds)
    return found


_places: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Places] = weakref.WeakKeyDictionary()
