"""The threads for the database work of calls, which is short; while a model is asked none is held."""

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
# They wait for name servers of users, a second at most each; calls that name no receiver do not wait for them.
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
    """Run what looks a name up. It has no connection of the database."""
    return await asyncio.get_running_loop().run_in_executor(_names, partial(work, *args, **kwargs))
