"""Calls of Redis from an event loop, bounded in time and completed even if their caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from common.redis import ANSWER_SECONDS

T = TypeVar("T")


async def asked(call: Awaitable[T]) -> T:
    """Await one call of Redis. Raises TimeoutError, which is an OSError, where it does not answer in time.

    Cancelling the caller does not cancel the call, which ends by itself. redis-py loses a connection of the pool where
    a call is cancelled while it gives it back, and its timeouts (`asyncio.wait_for`) lose the cancellation itself in
    Python 3.11: a stream would then outlive its client.
    """
    task = asyncio.ensure_future(_within(call))
    _going_on.add(task)  # the loop holds tasks weakly
    task.add_done_callback(_over)
    return await asyncio.shield(task)


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end, once more where the cancellation was lost in it."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=1)


_going_on: set[asyncio.Future[Any]] = set()


async def _within(call: Awaitable[T]) -> T:
    async with asyncio.timeout(ANSWER_SECONDS):
        return await call


def _over(task: asyncio.Future[Any]) -> None:
    _going_on.discard(task)
    if not task.cancelled():
        task.exception()  # nobody may be there any more to hear of it
