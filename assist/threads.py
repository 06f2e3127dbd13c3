"""The threads for the database work of calls, which is short; while a model is asked none is held.

On SQLite they keep their connections: opening one costs as much as all the statements of a call, and the last one that
is closed writes the log back. PostgreSQL's go back to the pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.db import connection

from common.async_threads import in_context

P = ParamSpec("P")
T = TypeVar("T")
_readers = ThreadPoolExecutor(8, thread_name_prefix="assist")
# They wait for name servers of users, a second at most each; calls that name no receiver do not wait for them.
_names = ThreadPoolExecutor(8, thread_name_prefix="assist-names")
# SQLite has one writer at a time, and others that try sleep: in one thread they come one after another.
_writer = ThreadPoolExecutor(1, thread_name_prefix="assist-writer")


async def in_reader_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what reads, with the request's id and the headers that services add to its response."""
    return await _in_thread(_readers, work, *args, **kwargs)


async def in_name_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run what looks a name up. It has no connection of the database."""
    return await asyncio.get_running_loop().run_in_executor(_names, partial(work, *args, **kwargs))


async def in_writer_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a transaction, likewise."""
    return await _in_thread(_writer if connection.vendor == "sqlite" else _readers, work, *args, **kwargs)


async def _in_thread(threads: ThreadPoolExecutor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    def run() -> T:
        try:
            return work(*args, **kwargs)
        finally:
            _release_connection()

    return await in_context(threads, run)


def _release_connection() -> None:
    if connection.vendor == "sqlite" and not connection.errors_occurred:
        return
    connection.close()
