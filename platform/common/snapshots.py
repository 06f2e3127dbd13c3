"""Reading one state of the database in many queries, while others write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def read_snapshot() -> Iterator[None]:
    """Let all queries inside see the state of the first one; no writer waits for them. Nothing can be written.

    Raise RuntimeError inside of a transaction, whose state is another.
    """
    if connection.in_atomic_block:
        raise RuntimeError("A snapshot is a transaction of its own.")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield
