"""Stale disks: those of several files that only their machine needs, most often since a snapshot was deleted.

A copy into one file frees what the guest has overwritten since. It is made in the background: one at a time, slowly,
and only while the host's disk has its reserve free. An operation of the workspace does not wait for it, but ends it.

Nothing of this is stored. What is stale is read from the machines, and a copy that ends with the process is removed
when the next one opens the driver. No other process copies: a host's machines have one vmhost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db import close_old_connections, connections
from django.db.models import Exists, OuterRef

from common.connections import release_connection
from vmbackend.copies import CopyPace
from vmbackend.driver import Driver
from vmbackend.errors import BackendError, BackendUnavailable
from workspaces.host.released_calls import released_calls
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE
from workspaces.states import Status

logger = logging.getLogger(__name__)

# Saved memory of a sleeping machine goes with the files that its disk has.
COPIED = (Status.RUNNING, Status.PAUSED, Status.STOPPED)
MIB_PER_SECOND = 64
# A copy has twice the time that it takes at that speed, and this time besides.
MORE_SECONDS = 120.0
# Seconds before the next attempt after one that failed or was given up; doubled each time.
FIRST_WAIT, LONGEST_WAIT = 300.0, 86400.0
# An operation waits no longer than this for a copy that ends; what has been written may have to be synced first.
END_SECONDS = 60.0
STILL_COPIED = "The machine's disk is still being copied."


@dataclass(frozen=True, slots=True)
class _Copy:
    workspace_id: str
    given_up: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


class Flattening:
    """Copies of the stale disks of one host. `has_room`: whether the host's disk has more than its reserve free."""

    def __init__(self, host: str, driver: Driver, *, has_room: Callable[[], bool]) -> None:
        self._host, self._driver = host, released_calls(driver)
        self._has_room = has_room
        self._lock = threading.Lock()
        self._copy: _Copy | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        # For each workspace whose copy was not made: when the next attempt may be, and the wait after that one.
        self._next: dict[str, tuple[float, float]] = {}

    def begin(self) -> bool:
        """Begin a round, unless one goes on. Never wait for a copy. Return whether one was begun."""
        with self._lock:
            if self._ended.is_set() or (self._thread is not None and self._thread.is_alive()):
                return False
            self._thread = threading.Thread(target=self._work, name="vmhost-flattening", daemon=True)
            self._thread.start()
        return True

    def run_once(self) -> int:
        """Copy the disks that are stale and due, those that need the least room first. Return how many were copied."""
        stale = self._driver.stale_disks()
        self._next = {key: due for key, due in self._next.items() if key in stale}
        copied = 0
        for key in sorted(stale, key=lambda key: (stale[key], key)):
            if self._ended.is_set() or not self._has_room():
                break
            if self._next.get(key, (0.0, 0.0))[0] <= time.monotonic():
                copied += self._flatten(key, stale[key])
        return copied

    def give_up(self, workspace_id: str) -> None:
        """End the copy of this workspace's disk, if there is one, for an operation that is live by now.

        Raise BackendUnavailable if it does not end: two must not change one machine.
        """
        with self._lock:
            copy = self._copy
        if copy is None or copy.workspace_id != workspace_id:
            return
        copy.given_up.set()
        release_connection()
        if not copy.ended.wait(END_SECONDS):
            raise BackendUnavailable(STILL_COPIED)

    def stop(self) -> None:
        """End the copy that is being made, and make no more."""
        self._ended.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(10)

    def _work(self) -> None:
        try:
            close_old_connections()
            self.run_once()
        except BackendError as exc:
            logger.warning("stale disks could not be looked for: %s", exc)
        except Exception:  # the next round may succeed
            logger.exception("a round of stale disks failed")
        finally:
            connections.close_all()

    def _flatten(self, key: str, needed_mb: int) -> bool:
        """Copy one disk. Return whether that was done; what keeps it from that keeps no other disk from it."""
        copy = _Copy(key)
        with self._lock:
            self._copy = copy
        try:
            # Only now: an operation that became live before is seen here, and one that comes later sees this copy.
            if not self._is_free(key):
                return False
            self._driver.flatten(key, *self._limits(copy, needed_mb))
        except BackendError as exc:
            self._postpone(key)
            logger.info("the disk of %s was not copied: %s", key, exc.message)
            return False
        except Exception:
            self._postpone(key)
            logger.exception("the disk of %s was not copied", key)
            return False
        finally:
            with self._lock:
                self._copy = None
            copy.ended.set()
        logger.info("the disk of %s was copied into one file: nothing else needed its %d MiB any more", key, needed_mb)
        return True

    def _is_free(self, key: str) -> bool:
        live = Operation.objects.filter(workspace=OuterRef("pk"), state__in=LIVE)
        return Workspace.objects.filter(~Exists(live), pk=key, host_id=self._host, status__in=COPIED).exists()

    def _limits(self, copy: _Copy, needed_mb: int) -> tuple[float, CopyPace]:
        def must_end() -> bool:
            return copy.given_up.is_set() or self._ended.is_set() or not self._has_room()

        return MORE_SECONDS + 2 * needed_mb / MIB_PER_SECOND, CopyPace(must_end, MIB_PER_SECOND << 20)

    def _postpone(self, key: str) -> None:
        wait = self._next.get(key, (0.0, FIRST_WAIT))[1]
        self._next[key] = time.monotonic() + wait, min(2 * wait, LONGEST_WAIT)
