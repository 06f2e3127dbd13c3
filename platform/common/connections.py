"""Database connections of requests that wait."""

from __future__ import annotations

from django.db import connection


def release_connection() -> None:
    """Return this thread's connection before a wait that needs no database; the next query gets one again.

    Requests that wait for a machine or a guest would otherwise hold every connection of the pool. Within a
    transaction it does nothing: that connection is in use.
    """
    if not connection.in_atomic_block:
        connection.close()
