"""The role that a host has in the database: made and dropped by functions that a superuser of its server installed.

A password is made here, told once, and kept as a SCRAM verifier alone.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction

_SQL = Path(__file__).with_name("roles.sql")
# Besides one for each operation: those of vmhost's other threads, of commands on the host, and of a process that ends
# while the next one begins.
_MORE_CONNECTIONS = 40


def roles_sql() -> str:
    """Return what a superuser of the database's server installs; it can be repeated."""
    return _SQL.read_text()


def can_make_roles() -> bool:
    """Return whether the functions are installed."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regproc('host_roles.make') IS NOT NULL")
        return bool(cursor.fetchone()[0])


def create_host_role(host_id: str) -> str:
    """Make the host's role, or give it another password, in the caller's transaction. Return the password.

    Raise DatabaseError if the id is not a host's, or the functions are not installed.
    """
    password = secrets.token_urlsafe(32)
    limit = settings.ENV.vmhost_threads + _MORE_CONNECTIONS
    with connection.cursor() as cursor:
        # The server sees no password, and writes none to its log.
        encrypted = cursor.connection.pgconn.encrypt_password(password.encode(), host_id.encode(), b"scram-sha-256")
        cursor.execute("SELECT host_roles.make(%s, %s, %s)", [host_id, encrypted.decode(), limit])
    return password


def drop_host_role(host_id: str) -> None:
    """Drop the host's role and end its sessions. Without a role nothing happens; a call that died is repeated.

    Two transactions: a session that begins while the first one commits is ended by the second. Raise DatabaseError,
    RuntimeError within a transaction.
    """
    with transaction.atomic(durable=True):
        found = _call("close", host_id)
    if found:
        with transaction.atomic(durable=True):
            _call("drop", host_id)


def list_host_roles() -> set[str]:
    """Return the ids of the hosts that have a role."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT host_roles.names()")
        return {name for (name,) in cursor.fetchall()}


def end_blocking_sessions(seconds: float) -> int:
    """End the sessions of hosts for which another session has waited that long. Return how many; none without the
    functions.
    """
    if not can_make_roles():
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT host_roles.end_blockers(%s)", [seconds])
        return int(cursor.fetchone()[0])


def _call(function: str, host_id: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT host_roles.{function}(%s)", [host_id])
        return bool(cursor.fetchone()[0])
