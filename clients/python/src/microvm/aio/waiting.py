"""Sleeping, locks and threads: the other side has its own."""

from __future__ import annotations

from asyncio import Lock, ensure_future, gather, sleep
from asyncio import to_thread as in_thread
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["AsyncBeside", "Lock", "in_thread", "sleep"]


class AsyncBeside:
    """Work that runs beside its maker's."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = ensure_future(work())

    async def end(self) -> None:
        self._task.cancel()
        await gather(self._task, return_exceptions=True)
