"""How many requests of one caller are in threads of a streams process at a time; the others of that caller wait.

Each of these threads wants a connection of the database's pool, which gives up after some seconds. Without a limit for
each caller, one with a thousand requests at once leaves none for anybody else. What follows a request's synchronous part
(a command, a transfer, an event stream) has limits of its own and holds no place.
"""

from __future__ import annotations

import asyncio
import hashlib
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest

# Fewer than a pool has connections (config/database.py), so that there are always some for others.
PLACES = 8
MAX_REMEMBERED = 10_000

_accounts: dict[str, str] = {}


class Place:
    """One request's place."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places: asyncio.Semaphore | None = places

    def give_back(self) -> None:
        """Idempotent. For the loop of the request."""
        places, self._places = self._places, None
        if places is not None:
            places.release()


_current: ContextVar[Place | None] = ContextVar("caller_place", default=None)
# By loop, as each belongs to one; a caller's are forgotten when none of its requests is there.
_by_loop: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, weakref.WeakValueDictionary[str, asyncio.Semaphore]
] = weakref.WeakKeyDictionary()


@asynccontextmanager
async def caller_place(request: HttpRequest) -> AsyncIterator[None]:
    """Wait for a place, and hold it until the end or `give_back_place`. A request without credentials needs none."""
    caller = _caller(request)
    if not caller:
        yield
        return
    everyone = _by_loop.setdefault(asyncio.get_running_loop(), weakref.WeakValueDictionary())
    places = everyone.setdefault(_accounts.get(caller, caller), asyncio.Semaphore(PLACES))
    await places.acquire()
    place = Place(places)
    _current.set(place)
    try:
        yield
    finally:
        place.give_back()


def give_back_place() -> None:
    """The request goes on without a thread."""
    place = _current.get()
    if place is not None:
        place.give_back()


def remember_account(request: HttpRequest, account_id: str) -> None:
    """The account of a caller whose credentials are valid: all its credentials share its places."""
    if not isinstance(request, ASGIRequest):
        return  # the api has a fixed number of threads, and no places
    if len(_accounts) >= MAX_REMEMBERED:
        _accounts.clear()
    _accounts[_caller(request)] = account_id


def _caller(request: HttpRequest) -> str:
    """By all of its credentials: a client id alone is no secret, and anybody could take its places."""
    names = ("X-Client-ID", "X-Client-Secret", "Authorization")
    given = [request.headers.get(name, "") for name in names]
    return hashlib.sha256("\0".join(given).encode()).hexdigest() if any(given) else ""

