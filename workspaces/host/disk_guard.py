"""Keeps machines from taking the last of the host's disk, so that logs and the database are the last to starve.

Disks of machines are sparse, so what guests write may fill the host however little was promised. Of the setting
`disk_reserve_mb`, the host's reserve:

    free below all of it      no machine is created or started here (`workspaces.placement`), no memory saved
    free below half of it     machines whose disks grow are paused, until three quarters are free again
    a quarter of it           is held as a file in the state folder, and given up when an eighth is free: what another
                              program left of the disk is then enough to delete workspaces, and to log

QEMU itself pauses a machine whose write finds no space, and repeats the write when it is resumed: no guest sees an
error. Nothing of this is stored. A later vmhost finds what the file system and the machines say.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from django.db import DatabaseError, InterfaceError, close_old_connections, connections
from django.db.models import Q

from vmbackend.driver import Driver
from vmbackend.errors import BackendError
from workspaces.audit import record_activity
from workspaces.models import Operation, Workspace
from workspaces.models.operation import LIVE
from workspaces.states import Status

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
# Below the full reserve.
CHECK_SOON_SECONDS = 0.2
# Operations during which a guest may write, and which leave a machine that was paused as it is. Pausing a machine whose
# memory is being saved would wait for the save.
BUSY = frozenset({Status.CREATING, Status.STARTING, Status.RESUMING, Status.WAKING, Status.STOPPING, Status.RESTARTING})
BUSY |= {Status.RESIZING, Status.REINSTALLING}
# Those that wait for the guest: it must go on when there is room. Others may have begun another run of the machine,
# which must not be resumed before its network is attached.
RESUMED_WHILE_BUSY = frozenset({Status.CREATING, Status.STARTING, Status.RESUMING, Status.WAKING})
MIB = 1 << 20
PAUSED_MESSAGE = "The host's disk is nearly full; the machine is paused until it is not."


def free_mb(folder: Path) -> int:
    """MiB that an unprivileged writer may still store in this file system."""
    return shutil.disk_usage(folder).free // MIB


class ReserveFile:
    """Disk space that is held by a file without content."""

    def __init__(self, path: Path, megabytes: int) -> None:
        self._path, self.megabytes = path, megabytes

    @property
    def is_held(self) -> bool:
        """Whether all of it is allocated; a process that died while it allocated leaves less."""
        try:
            return self._path.stat().st_blocks * 512 >= self.megabytes * MIB
        except OSError:
            return False

    def release_other_size(self) -> None:
        """Release a file that was made for another reserve."""
        with suppress(OSError):
            if self._path.stat().st_size != self.megabytes * MIB:
                self.release()

    def hold(self) -> None:
        """Allocate it. Raises OSError; nothing is held then.

        Some file systems store no blocks for a file without content: `is_held` tells.
        """
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self.megabytes * MIB)
            os.fsync(descriptor)  # network file systems allocate only then
        except OSError:
            self.release()
            raise
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Give the space back. Idempotent."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


class DiskGuard:
    """A thread of vmhost from `start` to `stop`; with a reserve of 0 it does nothing."""

    def __init__(
        self,
        host_name: str,
        driver: Driver,
        *,
        reserve_mb: int,
        state: Path,
        machines: Path,
        free: Callable[[Path], int] = free_mb,
    ) -> None:
        self._host_name, self._driver = host_name, driver
        self._reserve_mb, self._state, self._machines = reserve_mb, state, machines
        self._free = free
        self._on_room: Callable[[], object] = lambda: None
        self._file = ReserveFile(state / "reserve", reserve_mb // 4)
        self._can_hold = True
        self._short = False
        # At the last round; empty while there is room.
        self._allocated: Mapping[str, int] = {}
        self._grew: frozenset[str] = frozenset()
        self._paused_busy: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="disk-guard", daemon=True)

    @property
    def is_short(self) -> bool:
        """Whether machines that write wait for room: none may be resumed now."""
        return self._short

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
        """One round. What fails in it is tried again in the next one."""
        if not self._reserve_mb:
            return
        self._keep_reserve()
        # The first vmhost of an instance has not made the folder yet.
        free = self._free(self._machines if self._machines.is_dir() else self._state)
        # Measured from the full reserve on, so that the first round of a shortage knows what grows.
        growing = self._measure_growth() if free < self._reserve_mb else self._forget_sizes()
        if free < self._reserve_mb // 2:
            self._begin_shortage(free)
            self._pause_growing(growing)
        elif self._short and free >= self._reserve_mb * 3 // 4:
            logger.warning("disk: %d MiB are free again; machines that waited are resumed", free)
            self._resume_busy()
            self._short = False
            self._on_room()

    def _keep_reserve(self) -> None:
        free, size = self._free(self._state), self._file.megabytes
        if free < self._reserve_mb // 8:
            if self._file.is_held:
                logger.error("disk: %d MiB are free; the reserve of %d MiB is given up", free, size)
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
        """Machines whose disks allocated space since the last round."""
        before, self._allocated = self._allocated, self._driver.disk_allocations()
        return [key for key, size in self._allocated.items() if size > before.get(key, size)]

    def _forget_sizes(self) -> list[str]:
        self._allocated, self._grew = {}, frozenset()
        return []

    def _pause_growing(self, growing: list[str]) -> None:
        """Pause them; those that an operation is working on only where they grew in the round before, too.

        Without a database all are paused: it may be what has no room, and reconcile resumes those that should run.
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
            Workspace.objects.filter(idle | Q(pk__in=again, status__in=BUSY), pk__in=growing, host_id=self._host_name)
        )

    def _resume_busy(self) -> None:
        """Resume machines that were paused during an operation which goes on; others are left to `on_room`.

        Raises DatabaseError; it is tried again then.
        """
        rows = list(Workspace.objects.filter(pk__in=self._paused_busy, status__in=RESUMED_WHILE_BUSY))
        self._paused_busy = set()
        for row in rows:
            try:
                self._driver.resume(row.pk)
            except BackendError as exc:
                logger.warning("disk: %s cannot be resumed: %s", row.pk, exc)

    def _pause(self, key: str) -> bool:
        try:
            self._driver.pause(key)
        except BackendError as exc:
            logger.warning("disk: %s cannot be paused: %s", key, exc)
            return False
        return True

    def _work(self) -> None:
        # Sizes are known only below the full reserve.
        while not self._ended.wait(CHECK_SOON_SECONDS if self._allocated else CHECK_SECONDS):
            self._check_safely()
        connections.close_all()

    def _check_safely(self) -> None:
        try:
            close_old_connections()
            self.check_once()
        except Exception as exc:  # the thread must survive whatever cannot be written or asked on a full disk
            logger.warning("disk: %s", exc)
