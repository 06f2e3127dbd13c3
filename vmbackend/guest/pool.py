"""One process's sessions to guests: one event loop in a dedicated thread, connections reused between calls.

Synchronous callers use `call`, asynchronous ones (on their own loop) `acall`; the body is the same coroutine.
Streams are pulled: a chunk is requested only when the receiver wants it, so that a slow browser slows the
guest and nothing is buffered besides the session's requests in flight.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

from .deadlines import call_deadline
from .leases import OpenSession, Sessions
from .session import GuestAddress, GuestSession
from .sources import closing_source, pulled_from

T = TypeVar("T")
# How often a caller that waits for a chunk is asked whether it still wants it.
LOOK_SECONDS = 1.0
Pull = Callable[[GuestSession], AsyncIterator[T]]


class _Runtime:
    """The loop thread of one process."""

    def __init__(self, open_session: OpenSession, idle_seconds: float, max_connections: int) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="guest-pool", daemon=True)
        self._thread.start()
        self.sessions: Sessions = self.submit(self._begin(open_session, idle_seconds, max_connections)).result()

    def submit(self, work: Coroutine[Any, Any, T]) -> Any:
        """Run on the loop; return a concurrent future."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Cancel running tasks, close the sessions, end the thread."""
        self.submit(self._end()).result(timeout=30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=30)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    async def _begin(self, open_session: OpenSession, idle_seconds: float, limit: int) -> Sessions:
        sessions = Sessions(open_session, idle_seconds, limit)
        # The loop holds tasks weakly.
        self._sweeping = asyncio.ensure_future(sessions.close_idle_forever())
        return sessions

    async def _end(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=10)
        await self.sessions.close()


class GuestPool:
    """Sessions by address. Thread-safe; a forked child starts its own loop with its first call.

    `idle_seconds`: unused connections are closed after that. `max_connections`: machines at a time; further calls wait.
    """

    def __init__(self, open_session: OpenSession, *, idle_seconds: float = 60.0, max_connections: int = 64) -> None:
        self._arguments = (open_session, idle_seconds, max_connections)
        self._lock = threading.Lock()
        self._runtime: _Runtime | None = None
        _every_pool.add(self)

    def call(
        self,
        address: GuestAddress,
        fn: Callable[[GuestSession], Awaitable[T]],
        timeout: float | None = None,
    ) -> T:
        """Run `fn` with the guest's session and wait. Raise the errors of `fn`, and DeadlineExceeded."""
        result: T = self._start().submit(self._body(address, fn, timeout)).result()
        return result

    async def acall(
        self,
        address: GuestAddress,
        fn: Callable[[GuestSession], Awaitable[T]],
        timeout: float | None = None,
    ) -> T:
        """Return the same for a caller on another loop; cancelling it cancels `fn`."""
        result: T = await asyncio.wrap_future(self._start().submit(self._body(address, fn, timeout)))
        return result

    def stream(
        self,
        address: GuestAddress,
        fn: Pull[T],
        timeout: float | None = None,
        while_waiting: Callable[[], None] = lambda: None,
    ) -> Iterator[T]:
        """Yield chunks of `fn`, bytes or anything but None, pulled one by one; `timeout` in seconds per chunk.

        Close the iterator to stop early.

        `while_waiting` is called each second in which no chunk came; what it raises ends the stream.
        """
        runtime = self._start()
        chunks = _Pulled(self._chunks(address, fn))
        try:
            while (chunk := _result(runtime.submit(chunks.take_chunk(timeout)), while_waiting)) is not None:
                yield chunk
        finally:
            runtime.submit(chunks.finish()).result()

    async def astream(
        self, address: GuestAddress, fn: Pull[T], timeout: float | None = None
    ) -> AsyncGenerator[T, None]:
        """Yield the same for a caller on another loop. Use it within `contextlib.aclosing`."""
        runtime = self._start()
        chunks = _Pulled(self._chunks(address, fn))
        try:
            while (chunk := await asyncio.wrap_future(runtime.submit(chunks.take_chunk(timeout)))) is not None:
                yield chunk
        finally:
            # Shielded: a caller that is cancelled here must still return the session.
            await asyncio.shield(asyncio.wrap_future(runtime.submit(chunks.finish())))

    async def apush(
        self,
        address: GuestAddress,
        fn: Callable[[GuestSession, AsyncIterator[bytes]], Awaitable[T]],
        chunks: AsyncIterator[bytes],
        timeout: float | None = None,
    ) -> T:
        """Run `fn` with an iterator that pulls `chunks` on the caller's loop.

        Errors of `chunks` reach `fn`.
        """
        pulled = pulled_from(asyncio.get_running_loop(), chunks)
        return await self.acall(address, lambda session: fn(session, pulled), timeout)

    def push(
        self,
        address: GuestAddress,
        fn: Callable[[GuestSession, AsyncIterator[bytes]], Awaitable[T]],
        chunks: Iterator[bytes],
        timeout: float | None = None,
    ) -> T:
        """Return the same for a synchronous iterator, which is advanced in another thread than the caller's."""

        async def pulled() -> AsyncIterator[bytes]:
            while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
                yield chunk

        return self.call(address, lambda session: fn(session, pulled()), timeout)

    def close(self) -> None:
        """Close every connection and end the thread; running calls are cancelled.

        The pool may be used again.
        """
        with self._lock:
            runtime, self._runtime = self._runtime, None
        if runtime is not None:
            runtime.close()

    def _start(self) -> _Runtime:
        with self._lock:
            if self._runtime is None:
                self._runtime = _Runtime(*self._arguments)
            return self._runtime

    def _reset_after_fork(self) -> None:
        """Reset the pool in a forked child: the parent's thread does not exist there, and its lock may never be
        released.
        """
        self._lock = threading.Lock()
        self._runtime = None

    async def _body(
        self, address: GuestAddress, fn: Callable[[GuestSession], Awaitable[T]], timeout: float | None
    ) -> T:
        async with call_deadline(timeout), self._start().sessions.lease(address) as session:
            return await fn(session)

    async def _chunks(self, address: GuestAddress, fn: Pull[T]) -> AsyncGenerator[T, None]:
        async with self._start().sessions.lease(address) as session, closing_source(fn(session)) as source:
            async for chunk in source:
                yield chunk


def _result(pulling: Future[T | None], while_waiting: Callable[[], None]) -> T | None:
    try:
        while not wait([pulling], LOOK_SECONDS).done:
            while_waiting()
    except BaseException:
        pulling.cancel()
        raise
    return pulling.result()


async def _next(chunks: AsyncIterator[T], timeout: float | None) -> T | None:
    async with call_deadline(timeout):
        return await anext(chunks, None)


class _Pulled(Generic[T]):
    """Chunks that are pulled from another loop. All methods run on the pool's loop."""

    def __init__(self, chunks: AsyncGenerator[T, None]) -> None:
        self._chunks = chunks
        self._lock = asyncio.Lock()

    async def take_chunk(self, timeout: float | None) -> T | None:
        """Return the next chunk within `timeout` seconds, None at the end."""
        async with self._lock:
            return await _next(self._chunks, timeout)

    async def finish(self) -> None:
        """Close the chunks, and with them the guest's session.

        A caller that leaves cancels its `take_chunk`, which takes some time to end: until then the chunks are in use,
        and to close them would raise RuntimeError.
        """
        async with self._lock:
            await self._chunks.aclose()


_every_pool: weakref.WeakSet[GuestPool] = weakref.WeakSet()


def _reset_all_after_fork() -> None:
    for pool in list(_every_pool):
        pool._reset_after_fork()


os.register_at_fork(after_in_child=_reset_all_after_fork)
