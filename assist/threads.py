"""Threads for the database work of calls, which is short. No thread is held while a model is asked."""

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
_queries = ThreadPoolExecutor(8, thread_name_prefix="assist")
# Each waits at most a second for users' name servers. Calls that name no receiver do not wait for these threads.
_names = ThreadPoolExecutor(8, thread_name_prefix="assist-names")


async def in_query_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run queries, with the request's id and the headers that services add to its response. Then the connection goes
    back to the pool."""

    def run() -> T:
        try:
            return work(*args, **kwargs)
        finally:
            connection.close()

    return await in_context(_queries, run)


async def in_name_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that looks up a name. It has no connection to the database."""
    return await asyncio.get_running_loop().run_in_executor(_names, partial(work, *args, **kwargs))
