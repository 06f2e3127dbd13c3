"""Keeps machines from taking the last of the host's disk, so that logs and the database are the last to starve.

Disks of machines are sparse, so guests may fill the host however little was promised. The setting `disk_reserve_mb` is
the host's reserve:

    free below all of it      no machine is created or started here (`workspaces.placement`), no memory saved
    free below half of it     machines whose disks grow are paused, until three quarters are free again; one that has
                              grown by a sixteenth of it since then is ended: a paused machine does not write
    a quarter of it           is held as a file in the state folder, and given up when an eighth is free: if another
                              program fills the disk, there is then room to delete workspaces, and to log

QEMU itself pauses a machine whose write finds no space, and repeats the write when it is resumed: no guest sees an
error. None of this is stored: a later vmhost reads it from the file system and the machines.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from django.db.models import Q

from vmbackend.driver import Driver
from workspaces.audit import record_activity
from workspaces.host.reserve_file import MIB, ReserveFile
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE
from workspaces.states import Status

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
# Seconds between checks while less than the full reserve is free.
CHECK_SOON_SECONDS = 0.2
# Operations during which a guest may write, and which leave a machine that was paused as it is. Pausing a machine whose
# memory is being saved would wait for the save.
BUSY = frozenset({Status.CREATING, Status.STARTING, Status.RESUMING, Status.WAKING, Status.STOPPING, Status.RESTARTING})
BUSY |= {Status.RESIZING, Status.REINSTALLING, Status.RESTORING}
# Operations that wait for the guest: it must go on when there is room. Other operations may have begun another run of
# the machine, which must not be resumed before its network is attached.
RESUMED_WHILE_BUSY = frozenset({Status.CREATING, Status.STARTING, Status.RESUMING, Status.WAKING})
# A process that does not answer its monitor would hold a call; the guard goes on without it after this time.
ANSWER_SECONDS = 1.0
PAUSED_MESSAGE = "The host's disk is nearly full; the machine is paused until there is room."
ENDED_MESSAGE = "The host's disk is nearly full, and the machine's disk grew although it was paused; it was ended."


def free_mb(folder: Path) -> int:
    """Return the MiB that an unprivileged writer may still store in this file system."""
    return shutil.disk_usage(folder).free // MIB


class DiskGuard:
    """A thread of vmhost from `start` to `stop`; with a reserve of 0 it does nothing."""

    def __init__(
        self,
        host_id: str,
        driver: Driver,
        *,
        reserve_mb: int,
        state: Path,
        machines: Path,
        free: Callable[[Path], int] = free_mb,
    ) -> None:
        self._host_id, self._driver = host_id, driver
        self._reserve_mb, self._state, self._machines = reserve_mb, state, machines
        self._free = free
        self._on_room: Callable[[], object] = lambda: None
        self._file = ReserveFile(state / "reserve", reserve_mb // 4)
        self._can_hold = True
        self._short = False
        # Bytes allocated at the last round; empty while there is room.
        self._allocated: Mapping[str, int] = {}
        self._grew: frozenset[str] = frozenset()
        self._paused_busy: set[str] = set()
        # Bytes of the disks of machines when they were paused first in this shortage, or should have been.
        self._paused_at: dict[str, int] = {}
        self._calls: dict[tuple[str, str], Future[bool]] = {}  # the last call of the driver for each name and machine
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="disk-guard", daemon=True)

    @property
    def is_short(self) -> bool:
        """Return whether machines that write wait for room: none may be resumed now."""
        return self._short

    @property
    def has_reserve(self) -> bool:
        """Return whether all of the reserve is free: what can wait may write."""
        return not self._short and self._free_mb() >= self._reserve_mb

    def start(self, on_room: Callable[[], object]) -> None:
        """Check once, and from then on every second or more often. `on_room` is called when machines may be resumed."""
        self._on_room = on_room
        self._file.release_other_size()
        if self._reserve_mb:
            self._check_safely()
            self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def check_once(self) -> None:
        """Make one round. Whatever fails in it is tried again in the next round."""
        if not self._reserve_mb:
            return
        self._keep_reserve()
        free = self._free_mb()
        # Growth is measured below the full reserve already, so that the first round of a shortage knows what grew.
        growing = self._measure_growth() if free < self._reserve_mb else self._forget_sizes()
        if free < self._reserve_mb // 2:
            self._begin_shortage(free)
            self._pause_growing(self._end_growing(growing))
        elif self._short and free >= self._reserve_mb * 3 // 4:
            logger.warning("disk: %d MiB are free again; machines that waited are resumed", free)
            self._resume_busy()
            self._short, self._paused_at = False, {}
            self._on_room()

    def _free_mb(self) -> int:
        # The first vmhost of an instance has not made the folder yet.
        return self._free(self._machines if self._machines.is_dir() else self._state)

    def _keep_reserve(self) -> None:
        free, size = self._free(self._state), self._file.megabytes
        if free < self._reserve_mb // 8:
            if self._file.is_held:
                logger.error("disk: %d MiB are free; the held reserve of %d MiB is released", free, size)
            self._file.release()
        elif self._can_hold and free - size >= self._reserve_mb // 2 and not self._file.is_held:
            self._hold_reserve()

    def _hold_reserve(self) -> None:
        try:
            self._file.hold()
        except OSError as exc:
            logger.warning("disk: the reserve cannot be held: %s", exc)
            return
        if not self._file.is_held:
            logger.warning("disk: the file system of %s allocates no space in advance: no reserve is held", self._state)
            self._can_hold = False
            self._file.release()

    def _begin_shortage(self, free: int) -> None:
        if not self._short:
            logger.error("disk: %d MiB are free on the host; machines whose disks grow are paused", free)
            self._short = True

    def _measure_growth(self) -> list[str]:
        """Return the machines whose disks allocated space since the last round."""
        before, self._allocated = self._allocated, self._driver.disk_allocations()
        return [key for key, size in self._allocated.items() if size > before.get(key, size)]

    def _forget_sizes(self) -> list[str]:
        self._allocated, self._grew = {}, frozenset()
        self._calls = {name: call for name, call in self._calls.items() if not call.done()}
        return []

    def _end_growing(self, growing: list[str]) -> list[str]:
        """End the machines that went on growing after they were paused: something resumed them, or their process does
        not stop. Return the others.
        """
        limit = self._reserve_mb * MIB // 16
        others = []
        for key in growing:
            grown = self._allocated[key] - self._paused_at.get(key, self._allocated[key])
            if grown <= limit:
                others.append(key)
            elif self._call("destroy", key):
                logger.error("disk: %s was ended: its disk grew by %d MiB after it was paused", key, grown // MIB)
                with suppress(DatabaseError, InterfaceError):
                    for row in Workspace.objects.filter(pk=key):
                        record_activity(row, "disk_full", ENDED_MESSAGE)
        return others

    def _pause_growing(self, growing: list[str]) -> None:
        """Pause the growing machines. A machine that an operation is working on is paused only if it also grew in the
        round before.

        Without a database all are paused: it may be the database that has no room, and reconcile resumes the machines
        that should run.
        """
        again, self._grew = self._grew.intersection(growing), frozenset(growing)
        if not growing:
            return
        try:
            rows = self._rows_to_pause(growing, again)
        except (DatabaseError, InterfaceError) as exc:
            logger.warning("disk: without the database, all machines that grow are paused: %s", exc)
            self._paused_busy |= {key for key in growing if self._pause(key)}
            return
        for row in rows:
            if self._pause(row.pk):
                if row.status in RESUMED_WHILE_BUSY:
                    self._paused_busy.add(row.pk)
                with suppress(DatabaseError, InterfaceError):
                    record_activity(row, "disk_full", PAUSED_MESSAGE)

    def _rows_to_pause(self, growing: list[str], again: frozenset[str]) -> list[Workspace]:
        busy = Operation.objects.filter(workspace_id__in=growing, state__in=LIVE).values("workspace_id")
        idle = Q(status=Status.RUNNING) & ~Q(pk__in=busy)
        return list(
            Workspace.objects.filter(idle | Q(pk__in=again, status__in=BUSY), pk__in=growing, host_id=self._host_id)
        )

    def _resume_busy(self) -> None:
        """Resume machines that were paused during an operation which goes on; others are left to `on_room`.

        Raise DatabaseError; the next round tries again.
        """
        rows = list(Workspace.objects.filter(pk__in=self._paused_busy, status__in=RESUMED_WHILE_BUSY))
        self._paused_busy = set()
        for row in rows:
            self._call("resume", row.pk)

    def _pause(self, key: str) -> bool:
        self._paused_at.setdefault(key, self._allocated[key])
        return self._call("pause", key)

    def _call(self, method: str, key: str) -> bool:
        """Call the driver for a machine. Return False if it fails, and True if it has not returned after
        ANSWER_SECONDS.

        In that case the call is left to its thread, and not made again before it returns.
        """
        before = self._calls.get((method, key))
        if before is not None and not before.done():
            return False
        call: Future[bool] = Future()
        self._calls[method, key] = call
        threading.Thread(target=self._carry_out, args=(call, method, key), name=f"disk-{method}", daemon=True).start()
        try:
            return call.result(ANSWER_SECONDS)
        except TimeoutError:
            logger.warning("disk: the machine %s does not answer (%s)", key, method)
            return True

    def _carry_out(self, call: Future[bool], method: str, key: str) -> None:
        try:
            getattr(self._driver, method)(key)
            call.set_result(True)
        except Exception as exc:  # most often a machine that has ended in the meantime
            logger.warning("disk: %s failed for %s: %s", method, key, exc)
            call.set_result(False)

    def _work(self) -> None:
        # Sizes are known only below the full reserve.
        while not self._ended.wait(CHECK_SOON_SECONDS if self._allocated else CHECK_SECONDS):
            self._check_safely()
        connections.close_all()

    def _check_safely(self) -> None:
        try:
            close_old_connections()
            self.check_once()
        except Exception as exc:  # the thread must survive every failure on a full disk
            logger.warning("disk: the check failed: %s", exc)
