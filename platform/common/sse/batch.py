"""Batches of queries: many sources that need a row each at the same moment share one query."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from common.sse.runtime import in_thread

V = TypeVar("V")

GATHER_SECONDS = 0.02


class Batch(Generic[V]):
    """`load` runs in a thread, with all keys requested within GATHER_SECONDS; absent keys are None."""

    def __init__(self, load: Callable[[Sequence[str]], dict[str, V]]) -> None:
        self._load = load
        self._waiting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Future[V | None]]]
        self._waiting = weakref.WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop holds them weakly

    async def get(self, key: str) -> V | None:
        """Return the key's value. Raise what `load` does."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(loop)
        if waiting is None:
            waiting = self._waiting[loop] = {}
            task = asyncio.ensure_future(self._load_waiting(loop))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        # Shielded: callers of the same key share the future, and one of them may be cancelled.
        return await asyncio.shield(waiting.setdefault(key, loop.create_future()))

    async def _load_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        waiting = self._waiting.pop(loop)
        try:
            found = await in_thread(self._load, list(waiting))
        except Exception as exc:
            for future in waiting.values():
                future.set_exception(exc)
                future.exception()  # every caller may be gone: asyncio logs exceptions that are never retrieved
            return
        for key, future in waiting.items():
            future.set_result(found.get(key))


def seconds_to_next(now: float) -> float:
    """Return seconds until the next whole second: sources that sleep so long share their queries."""
    return 1.0 - now % 1.0
