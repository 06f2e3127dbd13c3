"""Database connections and threads of requests that wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from asgiref.sync import SyncToAsync
from django.db import connection

from common.caller_places import give_back_loop_place, give_back_thread_place


def release_connection() -> None:
    """Return this thread's connection before a wait that needs no database; the next query gets one again.

    Those that wait for a machine or a guest would otherwise hold every connection of the pool, and a request its place
    of its caller. Within a transaction it does nothing: that connection is in use.
    """
    if not connection.in_atomic_block:
        connection.close()
        give_back_thread_place()


@contextmanager
def connection_released_after() -> Iterator[None]:
    """Return the connection to the pool after queries in the middle of a wait that holds no connection."""
    try:
        yield
    finally:
        release_connection()


def release_thread() -> None:
    """End the thread in which this request's synchronous code ran.

    Under ASGI, Django keeps one for each request until the response ends (its signals alone start it), which for a
    stream is hours and for a command minutes. Synchronous code that follows gets a new thread. The request's place
    among those of its caller is given back.
    """
    give_back_loop_place()
    context = SyncToAsync.thread_sensitive_context.get(None)
    if context is None:
        return
    executor = SyncToAsync.context_to_thread_executor.pop(context, None)
    if executor is not None:
        executor.shutdown(wait=False)
