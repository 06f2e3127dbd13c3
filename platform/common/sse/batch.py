"""Many sources ask the database the same kind of question at the same moment: one query answers them all."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from common.sse.runtime import in_thread

V = TypeVar("V")

GATHER_SECONDS = 0.02


class Batch(Generic[V]):
    """`load` runs in a thread, with all keys that were asked for within GATHER_SECONDS; absent keys are None."""

    def __init__(self, load: Callable[[Sequence[str]], dict[str, V]]) -> None:
        self._load = load
        self._waiting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Future[V | None]]]
        self._waiting = weakref.WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop holds them weakly

    async def get(self, key: str) -> V | None:
        """The key's value. Raises what `load` does."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(loop)
        if waiting is None:
            waiting = self._waiting[loop] = {}
            task = asyncio.ensure_future(self._answer(loop))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        # Shielded: one who gives up must not take the answer from the others.
        return await asyncio.shield(waiting.setdefault(key, loop.create_future()))

    async def _answer(self, loop: asyncio.AbstractEventLoop) -> None:
        await asyncio.sleep(GATHER_SECONDS)
        waiting = self._waiting.pop(loop)
        try:
            found = await in_thread(self._load, list(waiting))
        except Exception as exc:
            for future in waiting.values():
                future.set_exception(exc)
                future.exception()  # nobody may be there any more to hear of it
            return
        for key, future in waiting.items():
            future.set_result(found.get(key))


def whole_seconds(now: float) -> float:
    """How long until the next whole second: sources that wait so ask together."""
    return 1.0 - now % 1.0
