"""Threads for coroutines: for a request's queries, bodies, large responses, calls of Redis and the broker.

Each kind has threads of its own, so that slow senders and large responses of one tenant delay no other one's commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

from common.connections import release_connection, release_thread

P = ParamSpec("P")
T = TypeVar("T")


async def in_request_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run an action's synchronous part; then its database connection is given back and the request's thread ends.

    For what comes before the wait. A later call starts another thread.
    """

    def run() -> T:
        try:
            return work(*args, **kwargs)
        finally:
            release_connection()

    try:
        return await sync_to_async(run)()
    finally:
        release_thread()


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, which continues if the caller is cancelled: a change of a guest is completed even if its client
    disconnects.

    `work` may outlive its request, so it uses `in_pool_thread` and not the request's thread. An error that it raises
    then has no reader; an unexpected one is logged.
    """
    task = asyncio.ensure_future(work)
    _running.add(task)  # the loop holds tasks weakly
    task.add_done_callback(_running.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_see_error)
        raise


@asynccontextmanager
async def entered_in_thread(context: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Use a synchronous context manager in a coroutine: it is entered and left in a thread of the loop's executor."""
    value = await in_pool_thread(context.__enter__)
    try:
        yield value
    except BaseException as exc:
        if not await in_pool_thread(context.__exit__, type(exc), exc, exc.__traceback__):
            raise
    else:
        await in_pool_thread(context.__exit__, None, None, None)


async def in_pool_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run short work of the platform's own (Redis, the broker, a query) in a thread of a pool for just that."""

    def run() -> T:
        try:
            return work(*args, **kwargs)
        finally:
            connections.close_all()  # these threads last, and none may keep a connection of the database

    return await in_context(_platform_threads, run)


async def in_body_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what reads a request's body: it lasts as long as its client takes to send it."""
    return await in_context(_body_threads, work, *args, **kwargs)


async def in_render_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what makes a response of a guest's data: its size, and so its time, is the tenant's choice."""
    return await in_context(_render_threads, work, *args, **kwargs)


async def in_context(threads: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run it in a thread with the caller's context: its log lines and its tasks name the caller's request."""
    called = partial(copy_context().run, work, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(threads, called)


_platform_threads = ThreadPoolExecutor(32, thread_name_prefix="platform-call")
_body_threads = ThreadPoolExecutor(32, thread_name_prefix="request-body")
_render_threads = ThreadPoolExecutor(4, thread_name_prefix="render")


def _see_error(task: asyncio.Task[Any]) -> None:
    """Look at the error of work whose caller is gone. The loop would log each with its traceback."""
    if not task.cancelled() and (error := task.exception()) is not None:
        # Not at the top: a worker loads no REST framework before something fails.
        from common.responses import as_domain_error

        as_domain_error(error)


_running: set[asyncio.Task[Any]] = set()
