"""The threads for the database work of calls, which is short; while a model is asked none is held.

On SQLite they keep their connections: opening one costs as much as all the statements of a call, and the last one that
is closed writes the log back. PostgreSQL's go back to the pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from django.db import connection

P = ParamSpec("P")
T = TypeVar("T")
# Some wait for a name server, a second at most.
_threads = ThreadPoolExecutor(8, thread_name_prefix="assist")


async def in_assist_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """With the request's id and the headers that services add to its response."""
    context = copy_context()

    def run() -> T:
        try:
            return context.run(work, *args, **kwargs)
        finally:
            _release_connection()

    return await asyncio.get_running_loop().run_in_executor(_threads, run)


def _release_connection() -> None:
    if connection.vendor == "sqlite" and not connection.errors_occurred:
        return
    connection.close()
