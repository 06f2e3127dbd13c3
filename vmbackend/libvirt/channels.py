"""The named pipes of machines: who may be read now, and how much of it.

A machine's events port and its console are named pipes. The guest is hostile and may write without end, so nothing it
says goes to the host's disk unread: a pipe holds 64 KiB, then the guest waits. The console goes into a log of bounded
size, and at most `EVENTS_BYTES_MAX` of a start are taken from the events port.

No lock of its own: all but `wait` and `wake` are called under the lock of `Events`.
"""

from __future__ import annotations

import logging
import os
import selectors
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from vmbackend.libvirt.bootlog import BootLog
from vmbackend.libvirt.record import MachineDir, Status

log = logging.getLogger(__name__)

EVENTS_BYTES_MAX = 65536  # of one start; an honest guest says less than 100
# A serial port hands over its bytes one by one. After each read a console rests, so that a chatty guest costs twenty
# reads a second and not a core.
_CONSOLE_PAUSE_SECONDS = 0.05
_READ_BYTES = 65536


@dataclass(slots=True)
class MachineRun:
    """One machine's channels and what is known of its last start."""

    files: MachineDir
    status: Status
    console: BootLog
    former: Status = field(default_factory=Status)  # what was known before this start was asked for
    events_fd: int = -1
    console_fd: int = -1
    events_bytes: int = 0
    line: bytes = b""
    starting: bool = False  # the start was asked for and libvirt has not told of it: a stop told now is an older one
    adopted: bool = False  # ran before this driver opened
    reset: bool = False  # the guest rebooted or panicked: its power-off was not a clean one
    fds: list[int] = field(default_factory=list)

    @property
    def exceeded_limit(self) -> bool:
        return self.events_bytes > EVENTS_BYTES_MAX


class Channels:
    """All open pipes of one driver; made anew for each of its openings."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._paused: deque[tuple[float, MachineRun]] = deque()

    def close(self) -> None:
        """After the last run was closed."""
        self._paused.clear()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._wake_read = self._wake_write = -1

    def wake(self) -> None:
        """End the `wait` of the other thread; harmless when closed."""
        with suppress(OSError):
            os.write(self._wake_write, b"!")

    def wait(self) -> list[tuple[MachineRun, int]]:
        """Block until somebody spoke, a console has rested or `wake` was called; the channels that have something."""
        due = max(0.0, self._paused[0][0] - time.monotonic()) if self._paused else None
        ready = []
        for key, _ in self._selector.select(due):
            if key.data is None:
                with suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
            else:
                ready.append((key.data, key.fd))
        return ready

    def open_run(self, run: MachineRun, *, fresh: bool = False) -> None:
        """Open the machine's pipes; `fresh` drops what an earlier start left in them."""
        # For reading and writing: a pipe without a writer would be at its end, and selectable, for ever.
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        run.files.create()
        run.events_fd = os.open(run.files.path / "events.out", flags)
        run.console_fd = os.open(run.files.path / "console.out", flags)
        run.fds = [run.events_fd, run.console_fd]
        for fd in run.fds:
            if fresh:
                _discard(fd)
            self._selector.register(fd, selectors.EVENT_READ, run)

    def close_run(self, run: MachineRun) -> None:
        for fd in run.fds:
            with suppress(KeyError, ValueError):
                self._selector.unregister(fd)
            os.close(fd)
        run.fds = []

    def read(self, run: MachineRun, fd: int) -> bytes:
        """What came on the events port; what came on the console is in its log already."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return b""
        if fd == run.console_fd:
            run.console.append(data)
            self._pause_console(run)
            return b""
        run.events_bytes += len(data)
        if run.exceeded_limit:
            log.warning("machine %s talks too much on its events port: not heard any more", run.files.id)
            with suppress(KeyError):
                self._selector.unregister(fd)
        return data

    def resume_consoles(self) -> None:
        while self._paused and self._paused[0][0] <= time.monotonic():
            _, run = self._paused.popleft()
            if run.console_fd in run.fds and run.console_fd not in self._selector.get_map():
                self._selector.register(run.console_fd, selectors.EVENT_READ, run)

    def _pause_console(self, run: MachineRun) -> None:
        if run.console_fd in self._selector.get_map():
            self._selector.unregister(run.console_fd)
            self._paused.append((time.monotonic() + _CONSOLE_PAUSE_SECONDS, run))


def _discard(fd: int) -> None:
    with suppress(BlockingIOError):
        while os.read(fd, _READ_BYTES):
            pass
