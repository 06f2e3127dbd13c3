"""The end of memory that is saved while its machine runs: programs are frozen for it, late and yet surely before it.

QEMU stops the CPUs for what is left once that is little. So the writer is slowed down first, and what is left after the
guest's answer says that the CPUs have not been stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import libvirt

from vmbackend.errors import GuestUnreachable

# How long the machine may stand still at the end, unless it changes memory faster than that is written.
_DOWNTIME_MS = 20
# Less than this is left: programs are frozen. More than one look at a fast disk misses.
_NEAR_BYTES = 96 << 20
# All of a machine as small as this is written in the time in which a busy host looks at its job again.
_SMALL_MB = 256
_SLOW_MB, _FAST_MB = 1, (1 << 63) - 1 >> 20  # a second; libvirt's own limit for a file is the latter
# After this time programs of a machine that changes its memory without end are frozen all the same.
_LATEST_SECONDS = 30.0
# A machine that has not ended its changes so long after that is stopped. Shorter than the guest keeps programs frozen.
_STILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Progress:
    """Bytes of the machine's memory: all of it, those that were written, and those that are left to write.

    Memory that changes is written again, so that more can be written than there is. All are 0 before and after the job.
    """

    total: int
    written: int
    left: int


class Convergence:
    """Looks at one job, and freezes the guest's programs when it nears its end; those of a small machine before it.

    `freeze`: raises GuestUnreachable. `has_room`: whether all that is left to write fits if the machine stood still.
    """

    def __init__(self, target: Any, memory_mb: int, freeze: Callable[[], None], has_room: Callable[[], bool]) -> None:
        self._target, self._memory_mb, self._freeze, self._has_room = target, memory_mb, freeze, has_room
        self._latest = time.monotonic() + _LATEST_SECONDS
        self._has_asked, self._has_stopped = False, False
        self._stop_at = float("inf")
        self.was_frozen = False
        """Whether programs stood before the CPUs did."""
        self.failure: GuestUnreachable | None = None

    def begin(self) -> None:
        """Prepare the job. Raise libvirtError, GuestUnreachable."""
        self._target.migrateSetMaxDowntime(_DOWNTIME_MS)
        if self._memory_mb <= _SMALL_MB:
            self._freeze()
            self._note_frozen()

    def look(self) -> None:
        """Do what is due. Raise libvirtError, as once the job has ended."""
        progress = self._read_progress()
        if not self._has_asked:
            if self._is_near_end(progress):
                self._has_asked = True
                self._target.migrateSetMaxSpeed(_SLOW_MB)
                self._ask()
        elif not self._has_stopped and (time.monotonic() >= self._stop_at or progress.written > 2 * progress.total):
            self._has_stopped = True
            self._target.suspend()

    def end(self) -> None:
        """Let later jobs be as fast as before. Raise libvirtError."""
        self._target.migrateSetMaxSpeed(_FAST_MB)

    def _is_near_end(self, progress: _Progress) -> bool:
        """Return whether programs are to be frozen: also if memory changes faster than it is written."""
        if not progress.left:
            return False
        endless = progress.written > progress.total or time.monotonic() >= self._latest
        return endless or progress.left < _NEAR_BYTES or not self._has_room()

    def _ask(self) -> None:
        try:
            self._freeze()
        except GuestUnreachable as error:
            self.failure = error
            self._target.abortJob()
            return
        # A guest that runs again after its CPUs stood answers when nothing is left.
        if self._read_progress().left > 0:
            self._note_frozen()
        self._target.migrateSetMaxSpeed(_FAST_MB)

    def _note_frozen(self) -> None:
        self._has_asked = self.was_frozen = True
        self._stop_at = time.monotonic() + _STILL_SECONDS

    def _read_progress(self) -> _Progress:
        job = self._target.jobInfo()
        if job[0] == libvirt.VIR_DOMAIN_JOB_NONE:
            return _Progress(0, 0, 0)
        return _Progress(*(int(number) for number in job[6:9]))
