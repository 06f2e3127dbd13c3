"""Calls that steps wait for, without a connection of the database.

A thread has a connection from its first query to the end of its task, and a creation from a slow registry takes half an
hour. As many creations as the pool has connections would keep the heartbeat and all other operations of the host from
the database.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from common.connections import release_connection

T = TypeVar("T")


def released_calls(target: T) -> T:
    """Wrap `target` so that its methods return the thread's connection before they begin; the next query gets one
    again.

    Within a transaction the connection is kept, as `common.connections.release_connection` says.
    """
    return cast(T, _ReleasedCalls(target))


class _ReleasedCalls:
    def __init__(self, target: object) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            release_connection()
            return value(*args, **kwargs)

        return call
