"""Hosts that share a PostgreSQL migrate it one after another: the one that does holds a lock of its session.

A host that waits says for whom, and gives up after PLATFORM_MIGRATION_WAIT_SECONDS. The session of a host that lost its
power or its network ends within some two minutes, and its lock with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

LOCK = 0x6D766D  # any number, the same on every host
POLL_SECONDS = 0.5
# Hosts that start together wait for a few seconds, which needs no report.
FIRST_REPORT_SECONDS = 5.0
REPORT_SECONDS = 60.0

# Settings that end the session if this host is gone; if the server is gone, every connection has its limits
# (`config.database`). The last one is for long statements; servers before PostgreSQL 14 lack it.
_OF_SERVER = {
    "tcp_keepalives_idle": "30s",
    "tcp_keepalives_interval": "10s",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60s",
    "client_connection_check_interval": "30s",
}
_HOLDER = """
    SELECT activity.pid, activity.application_name, host(activity.client_addr), activity.backend_start,
        activity.state, extract(epoch FROM clock_timestamp() - activity.state_change)
    FROM pg_locks AS locks JOIN pg_stat_activity AS activity USING (pid)
    WHERE locks.locktype = 'advisory' AND locks.granted AND locks.classid = 0 AND locks.objid = %s::oid
        AND locks.objsubid = 1 AND locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class LockNotHad(Exception):
    """Another host holds the lock for too long; the message says which one, and what the operator can do."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The session of another host that migrates. What the server hides from this role is None."""

    pid: int
    name: str | None
    address: str | None
    since: datetime | None
    state: str | None
    state_seconds: float | None

    def __str__(self) -> str:
        name = f"{self.name}, " if self.name else ""
        local = "on the database's own host" if self.since else "of another role"
        where = f"from {self.address}" if self.address else local
        since = f" since {self.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        state = f", {self.state} for {self.state_seconds or 0:.0f} s" if self.state else ""
        return f"{name}session {self.pid} {where}{since}{state}"


def take_migration_lock(host: str, limit: float, parent: int, report: Callable[[str], None]) -> None:
    """Take the lock for as long as this process's connection to the database is open.

    `limit`: for how many seconds it waits at most. `parent`: the process that started this one; this one ends if
    that is gone, as its result would be seen by no one. `report` gets a line while another host migrates.

    Raise LockNotHad, SystemExit.
    """
    from django.db import connection

    with connection.cursor() as cursor:
        _describe_session(cursor, host)
        _wait_for_lock(cursor, limit, parent, report)


def _describe_session(cursor: Any, host: str) -> None:
    """Describe the session, so that others can say who holds the lock, and the server finds out that this host is
    gone.
    """
    from django.db import DatabaseError

    cursor.execute("SELECT set_config('application_name', %s, false)", [f"migrations of {host}"])
    for name, value in _OF_SERVER.items():
        # Not each server has all of them.
        with suppress(DatabaseError):
            cursor.execute("SELECT set_config(%s, %s, false)", [name, value])


def _wait_for_lock(cursor: Any, limit: float, parent: int, report: Callable[[str], None]) -> None:
    """Ask for the lock again and again: a statement that waits has a snapshot, for whose end CREATE INDEX CONCURRENTLY
    of the host that migrates would wait, which is a deadlock.
    """
    begun = time.monotonic()
    next_report = begun + FIRST_REPORT_SECONDS
    reported = False
    while not _is_taken(cursor, parent):
        now = time.monotonic()
        if now - begun >= limit:
            raise LockNotHad(_refusal(_holder(cursor), limit))
        if now >= next_report and (holder := _holder(cursor)):
            report(f"waiting for another host to migrate ({holder}), for {(begun + limit - now) / 60:.0f} min more")
            next_report, reported = now + REPORT_SECONDS, True
        time.sleep(POLL_SECONDS)
    if reported:
        report("the other host has ended; it is this one's turn")


def _is_taken(cursor: Any, parent: int) -> bool:
    if os.getppid() != parent:
        raise SystemExit("The command that prepares the instance has ended.")
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [LOCK])
    return bool(cursor.fetchone()[0])


def _holder(cursor: Any) -> Holder | None:
    """Return the holder of the lock; None if it has just ended."""
    cursor.execute(_HOLDER, [LOCK])
    row = cursor.fetchone()
    return Holder(*row) if row else None


def _refusal(holder: Holder | None, limit: float) -> str:
    waited = (
        f"Another host migrates the database, and this one has waited for {limit:.0f} s "
        "(PLATFORM_MIGRATION_WAIT_SECONDS)."
    )
    if holder is None:
        return f"{waited} The other one has ended at this moment: start again."
    return (
        f"{waited} The lock is held by: {holder}. If that host still migrates, start this one again later. If it is "
        f"lost, end its session in the database with SELECT pg_terminate_backend({holder.pid}) and start again."
    )
