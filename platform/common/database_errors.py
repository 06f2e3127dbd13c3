"""What a failure of the database means, in one place for both databases.

Most are failures of the database as such: its disk is full, it cannot be reached, it does not answer in time. None of
them says anything about the request, so the same request may succeed later.
"""

from __future__ import annotations

import sqlite3

from django.db import DatabaseError, IntegrityError, InterfaceError, InternalError, OperationalError

# SQLite reports programming errors (no such table, bad syntax) as operational ones, under this generic code.
_GENERIC = sqlite3.SQLITE_ERROR
_CODE_MASK = 0xFF  # the low byte of an extended result code is the primary one
# PostgreSQL's code of a write to a server that only reads: a standby, until a fail-over is complete.
_READ_ONLY = "25006"
_FOREIGN_KEY = "23503"
_UNIQUE = "23505"
# Django has no class of its own for these before 6.0.
_NOTHING_UPDATED = {
    "Forced update did not affect any rows.",
    "Save with update_fields did not affect any rows.",
}


def is_database_unavailable(exc: BaseException) -> bool:
    """Whether a query or a commit failed for a reason that lies with the database, not with the request.

    On SQLite: disk full, I/O error, locked for too long, cannot be opened or written. On PostgreSQL every operational
    error: no connection, the classes 53 (a full disk among them), 57P and 58, deadlocks; and a server that only reads.
    A transaction that failed so was rolled back; only a connection that was lost during COMMIT leaves open whether it
    was.
    """
    if isinstance(exc, InterfaceError):
        return True  # the connection was closed by the server
    if isinstance(exc, InternalError):
        return getattr(exc.__cause__, "sqlstate", None) == _READ_ONLY
    if not isinstance(exc, OperationalError):
        return False
    cause = exc.__cause__
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", _GENERIC)
        return code & _CODE_MASK != _GENERIC
    return True


def is_duplicate(exc: IntegrityError) -> bool:
    """Whether another row has the value that is unique."""
    cause = exc.__cause__
    if isinstance(cause, sqlite3.Error):
        unique = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
        return getattr(cause, "sqlite_errorcode", None) in unique
    return getattr(cause, "sqlstate", None) == _UNIQUE


def is_row_gone(exc: BaseException) -> bool:
    """Whether a row was not written because another transaction deleted it, or one that it refers to.

    Both databases find the latter at the commit at the latest; nothing of the transaction is stored then.
    """
    if is_update_of_nothing(exc):
        return True
    if not isinstance(exc, IntegrityError):
        return False
    cause = exc.__cause__
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", None) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY
    return getattr(cause, "sqlstate", None) == _FOREIGN_KEY


def is_update_of_nothing(exc: BaseException) -> bool:
    """Whether it is what `Model.save` raises that may only update, where the row was deleted since it was read."""
    return type(exc) is DatabaseError and str(exc) in _NOTHING_UPDATED
