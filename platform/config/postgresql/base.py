"""Django's PostgreSQL engine; a pooled connection whose server is gone is replaced before a query finds it."""

from __future__ import annotations

import json
import select
from datetime import datetime
from typing import Any

import psycopg
from django.db.backends.postgresql import base, psycopg_any
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import TextLoader
from psycopg_pool import ConnectionPool

# Characters, and brackets among them: fewer have neither too many digits nor too deep a nesting.
_FEW, _FLAT = 4000, 400


class BoundedTimes(TimestamptzLoader):
    """Times with their zone, of which PostgreSQL has more than Python: `infinity`, years before 1 and after 9999.

    A host writes times with credentials of its own, and one such value kept every reader of the table from all rows.
    """

    timezone: Any = None

    def load(self, data: Any) -> Any:
        """Return the time, or one as far away as can be computed with."""
        try:
            return super().load(data).replace(tzinfo=self.timezone)
        except psycopg.DataError:
            text = bytes(data)
            is_early = text.startswith(b"-") or text.endswith(b"BC")
            return datetime(1900 if is_early else 9000, 1, 1, tzinfo=self.timezone)


class ReadableJSON(TextLoader):
    """Text, of JSON too, of which PostgreSQL has more than Python reads: numbers of thousands of digits, and lists in
    lists a thousand deep. One such value kept every reader of the table from all rows.
    """

    def load(self, data: Any) -> Any:
        """Return the text, or JSON's null in place of what cannot be read."""
        text = str(super().load(data))  # bytes are of a connection without an encoding, which there is none of
        if len(text) < _FEW and text.count("[") + text.count("{") < _FLAT:
            return text
        try:
            # Deeper than it is: it may be read where fewer calls are left.
            json.loads("[" * _FLAT + text + "]" * _FLAT)
        except (ValueError, RecursionError):
            return "null"
        return text


# Looked up when a connection is made.
psycopg_any.BaseTzLoader = BoundedTimes
psycopg_any.TextLoader = ReadableJSON


class DatabaseWrapper(base.DatabaseWrapper):
    """Used by name, as the database setting's ENGINE."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection whose server has not closed it; without a round trip, which each request would wait for.

        Dead ones go back to the pool, which replaces them; each may be dead after a restart of the server. Raises
        PoolTimeout, psycopg.OperationalError.
        """
        connection = super().get_new_connection(conn_params)
        while self.pool is not None and not is_alive(connection):
            connection.close()
            self.pool.putconn(connection)
            connection = super().get_new_connection(conn_params)
        return connection


def is_alive(connection: psycopg.Connection[Any]) -> bool:
    """False once the server has ended the connection: that is there to be read, though nothing was asked.

    So are a notice and a changed parameter, and the server's reason arrives before the end itself: whatever is there to
    be read, the server is asked once whether it answers.
    """
    readable = select.poll()
    try:
        readable.register(connection.pgconn.socket, select.POLLIN)
        if readable.poll(0):
            ConnectionPool.check_connection(connection)
    except (psycopg.OperationalError, OSError, ValueError):  # the last two: it has no socket any more
        return False
    return True
