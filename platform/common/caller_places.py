"""How many requests of one caller a process carries out at a time; the others of that caller wait.

A caller that sends a thousand requests at once would otherwise have all threads of the api, and all connections of the
database's pool, which gives up after some seconds. A request holds its place until it ends or begins to wait for
something else than the database (an operation, a guest, the sender of an event stream), which has limits of its own.

In the api those that wait take threads, too, so a caller has a share of them; beyond it requests are refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache

from django.conf import settings
from django.http import HttpRequest

from common.errors import RateLimited

# Fewer than a pool has connections (config/database.py), so that there are always some for others.
PLACES = 8
MAX_REMEMBERED = 10_000
RETRY_SECONDS = 1

_accounts: dict[str, str] = {}


def remember_account(request: HttpRequest, account_id: str) -> None:
    """Remember the account of a caller with valid credentials: all credentials of an account share its places.

    A request that was authorized by something else, such as a signed address, is not remembered: it has no credentials,
    and all others without them would be taken for that account.
    """
    credentials = _credentials(request)
    if not credentials:
        return
    if len(_accounts) >= MAX_REMEMBERED:
        _accounts.clear()
    _accounts[credentials] = account_id


def _caller(request: HttpRequest) -> str:
    """Return the caller; empty for a request without credentials, which needs no place."""
    caller = _credentials(request)
    return _accounts.get(caller, caller)


def _credentials(request: HttpRequest) -> str:
    """Return all credentials: a client id alone is not a secret, and anybody could take its places."""
    names = ("X-Client-ID", "X-Client-Secret", "Authorization")
    given = [request.headers.get(name, "") for name in names]
    return hashlib.sha256("\0".join(given).encode()).hexdigest() if any(given) else ""


# Streams: on an event loop.


class _LoopPlace:
    """One request's place. For the loop of the request."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places: asyncio.Semaphore | None = places

    def give_back(self) -> None:
        places, self._places = self._places, None
        if places is not None:
            places.release()


_Semaphores = weakref.WeakValueDictionary[str, asyncio.Semaphore]
# By loop, as each belongs to one; a caller's are forgotten when none of its requests is there.
_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Semaphores] = weakref.WeakKeyDictionary()
_loop_place: ContextVar[_LoopPlace | None] = ContextVar("caller_place", default=None)


@asynccontextmanager
async def loop_place(request: HttpRequest) -> AsyncIterator[None]:
    """Wait for a place, and hold it until the end or `give_back_loop_place`."""
    caller = _caller(request)
    if not caller:
        yield
        return
    everyone = _by_loop.setdefault(asyncio.get_running_loop(), weakref.WeakValueDictionary())
    places = everyone.setdefault(caller, asyncio.Semaphore(PLACES))
    await places.acquire()
    place = _LoopPlace(places)
    _loop_place.set(place)
    try:
        yield
    finally:
        place.give_back()


def give_back_loop_place() -> None:
    """Give the place back when the request goes on without a thread. Idempotent."""
    place = _loop_place.get()
    if place is not None:
        place.give_back()


# The api: in threads.


class ThreadPlaces:
    """Safe in many threads. `most`: the threads that one caller may have, those that wait included."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._threads: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._queues: dict[str, deque[threading.Event]] = {}

    @contextmanager
    def place(self, caller: str) -> Iterator[None]:
        """Do what `thread_place` does."""
        self._enter(caller)
        held = [True]

        def give_back() -> None:
            if held:
                held.clear()
                self._give_back(caller)

        _thread.give_back = give_back
        try:
            yield
        finally:
            _thread.give_back = None
            give_back()
            with self._lock:
                _decrease(self._threads, caller)

    def _enter(self, caller: str) -> None:
        with self._lock:
            if self._threads[caller] >= self._most:
                raise RateLimited("Too many requests at once.", headers={"Retry-After": str(RETRY_SECONDS)})
            self._threads[caller] += 1
            if self._running[caller] < PLACES:
                self._running[caller] += 1
                return
            turn = threading.Event()
            self._queues.setdefault(caller, deque()).append(turn)
        turn.wait()  # the place is handed over by a request that ends or waits, which each of them does

    def _give_back(self, caller: str) -> None:
        with self._lock:
            queue = self._queues.get(caller)
            if queue:
                queue.popleft().set()
                if not queue:
                    del self._queues[caller]
            else:
                _decrease(self._running, caller)


def _decrease(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


_thread = threading.local()


@lru_cache(maxsize=1)
def thread_places() -> ThreadPlaces:
    """Return the places of this process."""
    return ThreadPlaces(max(1, settings.ENV.api_threads * 3 // 4))


@contextmanager
def thread_place(request: HttpRequest) -> Iterator[None]:
    """Wait for a place, and hold it until the end or `give_back_thread_place`. Raise RateLimited."""
    caller = _caller(request)
    with thread_places().place(caller) if caller else nullcontext():
        yield


def give_back_thread_place() -> None:
    """Give the place back when the request of this thread waits for something that has limits of its own. Idempotent;
    for any thread.
    """
    give_back = getattr(_thread, "give_back", None)
    if give_back is not None:
        give_back()
