"""What looks for certificates that are due: one thread of the process `pages`, and a few that carry out steps.

Threads of its own and no Celery tasks: a step waits for a CA for seconds, as long as tasks of the queue must
not wait for each other; and certificates are renewed also while Redis is away. No step sleeps: what is to be
awaited is a time in the row. Several such processes share the work by the rows' leases.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from cryptography.fernet import InvalidToken
from django.db import close_old_connections, connections

from certificates import clock, tokens
from certificates.leases import due_ids, owners_of
from certificates.steps import certificate_step
from common.database_errors import is_database_unavailable

logger = logging.getLogger(__name__)

THREADS = 4
# A step waits ten seconds for name servers that do not answer, and an account may have a hundred names with such ones.
OF_AN_OWNER = 2
LOOK_SECONDS = 1.0
PRUNE_SECONDS = 3600.0
CLOCK_SECONDS = 60.0
# As long as the supervisor waits for the process, nearly; a step that is cut off is carried on when its lease is over.
STOP_SECONDS = 20.0


class Dispatcher:
    """From `start` to `stop`."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="certificate")
        # Rows whose steps are carried out, and their owners.
        self._running: dict[str, str] = {}
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)
        self._pruned = self._followed = -PRUNE_SECONDS

    def start(self) -> None:
        """Begin with what is due."""
        self._thread.start()

    def stop_claiming(self) -> None:
        """Begin no further step. Returns at once; may be called by a signal handler."""
        self._stopping.set()
        self._woken.set()

    def stop(self) -> None:
        """Wait for the steps that have begun, for STOP_SECONDS at most."""
        self.stop_claiming()
        self._thread.join(STOP_SECONDS)
        until = time.monotonic() + STOP_SECONDS
        while self._running and time.monotonic() < until:
            time.sleep(0.05)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._look()
            except Exception as exc:  # the thread must survive whatever may be gone at the next look
                _log_failure("certificates", exc)
                with suppress(Exception):
                    connections.close_all()
            self._woken.wait(LOOK_SECONDS)
            self._woken.clear()
        connections.close_all()

    def _look(self) -> None:
        close_old_connections()
        if time.monotonic() - self._pruned > PRUNE_SECONDS:
            self._pruned = time.monotonic()
            tokens.tokens_prune()
        if time.monotonic() - self._followed > CLOCK_SECONDS:
            self._followed = time.monotonic()
            clock.clock_follow()
        with self._lock:
            free, full = THREADS - len(self._running), self._full_owners()
        due = due_ids(THREADS, without=full) if free else []
        owners = owners_of(due)
        for key in due:
            if self._take_place(key, owners.get(key, "")):
                self._pool.submit(self._step, key)

    def _take_place(self, key: str, owner: str) -> bool:
        with self._lock:
            if len(self._running) >= THREADS or key in self._running or owner in self._full_owners():
                return False
            self._running[key] = owner
            return True

    def _full_owners(self) -> set[str]:
        """Those that have as many steps under way as they may; the caller has the lock. Names of no owner may all."""
        counts = Counter(filter(None, self._running.values()))
        return {owner for owner, count in counts.items() if count >= OF_AN_OWNER}

    def _step(self, key: str) -> None:
        try:
            certificate_step(key)
        except InvalidToken:
            logger.error("%s: its key is not readable with the keys of this instance", key)
        except Exception as exc:
            _log_failure(f"certificate {key}", exc)
        finally:
            with suppress(Exception):
                connections.close_all()
            with self._lock:
                self._running.pop(key, None)
            self._woken.set()


def _log_failure(what: str, exc: Exception) -> None:
    if is_database_unavailable(exc):
        logger.warning("%s: waits for the database: %s", what, exc)
    else:
        logger.error(what, exc_info=exc)
