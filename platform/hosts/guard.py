"""Guard against what one host could do to all with the rights that it needs: a thread of the process `hooks`.

A host that holds locks in the database, or keeps Redis busy with a script, is ended after seconds. The worker cannot do
it, as it may be what waits.
"""

from __future__ import annotations

import logging
import threading

from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from redis import RedisError, ResponseError

from common.connections import release_connection
from common.host_access.roles import end_blocking_sessions
from common.redis import redis_client

logger = logging.getLogger(__name__)

ROUND_SECONDS = 2.0
# Longer than any lock of a healthy host is held, and less than requests wait for one.
LOCKED_SECONDS = 3.0


class HostGuard:
    """The thread, as a part of a worker (`common.work.processes.WorkerProcess`)."""

    role = "hooks"
    loads: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start it."""
        self._thread = threading.Thread(target=self._work, name="host-guard", daemon=True)
        self._thread.start()

    def end_soon(self) -> None:
        """Begin no further round."""
        self._ended.set()

    def end(self) -> None:
        """Wait for the round that is under way."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(10)

    def _work(self) -> None:
        while not self._ended.wait(ROUND_SECONDS):
            guard_database()
            guard_redis()
        connections.close_all()


def guard_database() -> None:
    """End sessions of hosts for which others wait. Raise nothing."""
    try:
        close_old_connections()
        if ended := end_blocking_sessions(LOCKED_SECONDS):
            logger.error("%d sessions of hosts were ended: they kept others waiting", ended)
        release_connection()
    except (DatabaseError, InterfaceError) as error:
        logger.warning("sessions of hosts were not looked at: %s", error)


def guard_redis() -> None:
    """End a script that keeps Redis busy; none of the platform runs for so long. Raise nothing.

    One that has written cannot be ended: Redis is, which keeps nothing, and its supervisor starts it again.
    """
    client = redis_client()
    try:
        client.ping()
    except ResponseError as error:
        if str(error).startswith("BUSY"):
            logger.error("a script kept Redis busy and is ended")
            _end_script()
    except (RedisError, OSError):
        pass  # it is away, which its users say


def _end_script() -> None:
    client = redis_client()
    try:
        client.script_kill()
    except ResponseError as error:
        if "UNKILLABLE" in str(error):
            client.shutdown(nosave=True, now=True, force=True)
    except (RedisError, OSError) as error:
        logger.warning("the script goes on: %s", error)
