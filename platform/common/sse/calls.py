"""Calls of Redis from an event loop, bounded in time and completed even if their caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from common.redis import ANSWER_SECONDS

T = TypeVar("T")


async def bounded_call(call: Awaitable[T]) -> T:
    """Await one call of Redis. Raise TimeoutError, which is an OSError, after ANSWER_SECONDS.

    Cancelling the caller does not cancel the call, which completes by itself. redis-py loses a connection of the pool
    if a call is cancelled while it returns the connection, and its timeouts (`asyncio.wait_for`) swallow the
    cancellation in Python 3.11: a stream would then outlive its client.
    """
    task = asyncio.ensure_future(_with_timeout(call))
    _pending.add(task)  # the loop holds tasks weakly
    task.add_done_callback(_discard)
    return await asyncio.shield(task)


async def cancel_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end; repeated, as a task can swallow a cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=1)


_pending: set[asyncio.Future[Any]] = set()


async def _with_timeout(call: Awaitable[T]) -> T:
    async with asyncio.timeout(ANSWER_SECONDS):
        return await call


def _discard(task: asyncio.Future[Any]) -> None:
    _pending.discard(task)
    if not task.cancelled():
        task.exception()  # the caller may be gone: asyncio logs exceptions that are never retrieved
