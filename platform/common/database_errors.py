"""Meaning of a failure of the database, in one place.

Most are failures of the database as such: its disk is full, it cannot be reached, it does not answer in time. None of
them says anything about the request, so the same request may succeed later.
"""

from __future__ import annotations

from django.db import DatabaseError, IntegrityError, InterfaceError, InternalError, OperationalError

# The code of a write to a server that only reads: a standby, until a fail-over is complete.
_READ_ONLY = "25006"
_FOREIGN_KEY = "23503"
_UNIQUE = "23505"
# Django has no class of its own for these before 6.0.
_NOTHING_UPDATED = {
    "Forced update did not affect any rows.",
    "Save with update_fields did not affect any rows.",
}


def is_database_unavailable(exc: BaseException) -> bool:
    """Return whether a query or a commit failed for a reason that lies with the database, not with the request.

    Every operational error is one (no connection, the classes 53, a full disk among them, 57P and 58, deadlocks), and a
    server that only reads. A transaction that failed so was rolled back; only a connection that was lost during COMMIT
    leaves open whether it was.
    """
    if isinstance(exc, InterfaceError):
        return True  # the connection was closed by the server
    if isinstance(exc, InternalError):
        return _code(exc) == _READ_ONLY
    return isinstance(exc, OperationalError)


def is_duplicate(exc: IntegrityError) -> bool:
    """Return whether another row has the value that is unique."""
    return _code(exc) == _UNIQUE


def is_row_gone(exc: BaseException) -> bool:
    """Return whether a row was not written because another transaction deleted it, or one that it refers to.

    The latter is found at the commit at the latest; nothing of the transaction is stored then.
    """
    return is_update_of_nothing(exc) or (isinstance(exc, IntegrityError) and _code(exc) == _FOREIGN_KEY)


def is_update_of_nothing(exc: BaseException) -> bool:
    """Return whether it is what `Model.save` raises that may only update, if the row was deleted since it was read."""
    return type(exc) is DatabaseError and str(exc) in _NOTHING_UPDATED


def _code(exc: BaseException) -> str | None:
    """Return the SQLSTATE of the driver's error."""
    return getattr(exc.__cause__, "sqlstate", None)
