"""Database connections of requests that wait."""

from __future__ import annotations

from django.db import connection


def release_connection() -> None:
    """Give this thread's connection back before a wait that needs no database; the next query takes one again.

    Requests that wait for a machine or a guest would otherwise hold every connection of the pool. Within a
    transaction nothing happens: its connection cannot be given back.
    """
    if not connection.in_atomic_block:
        connection.close()
