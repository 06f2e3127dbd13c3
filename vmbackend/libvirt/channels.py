"""The named pipes of machines: the events port and the console, with limits on what is read.

The guest is hostile and may write without end: a pipe holds 64 KiB, then the guest blocks. The console is written to a
log of limited size, and at most `EVENTS_BYTES_MAX` are read from the events port per start.

Not thread-safe: all methods but `wait` and `wake` are called with the lock of `Events` held.
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

EVENTS_BYTES_MAX = 65536  # per start; a regular guest sends less than 100
# A serial port delivers single bytes. A console is read at most twenty times a second, so that a guest that writes all
# the time does not use a core of the host.
_CONSOLE_PAUSE_SECONDS = 0.05
_READ_BYTES = 65536


@dataclass(slots=True)
class MachineRun:
    """One machine's channels and the status of its last start."""

    files: MachineDir
    status: Status
    console: BootLog
    former: Status = field(default_factory=Status)  # the status before this start
    events_fd: int = -1
    console_fd: int = -1
    events_bytes: int = 0
    line: bytes = b""
    starting: bool = False  # libvirt has not reported the start yet: a stop reported now is an earlier one
    adopted: bool = False  # was running when this driver opened
    reset: bool = False  # the guest rebooted or panicked: its stop is not a clean shutdown
    fds: list[int] = field(default_factory=list)

    @property
    def exceeded_limit(self) -> bool:
        return self.events_bytes > EVENTS_BYTES_MAX


class Channels:
    """All open pipes of a driver, from its `open` to its `close`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._paused: deque[tuple[float, MachineRun]] = deque()

    def close(self) -> None:
        """Close the selector, after the last run was closed."""
        self._paused.clear()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._wake_read = self._wake_write = -1

    def wake(self) -> None:
        """Make the other thread's `wait` return. No effect when closed."""
        with suppress(OSError):
            os.write(self._wake_write, b"!")

    def wait(self) -> list[tuple[MachineRun, int]]:
        """Block until data arrives, a console's pause ends or `wake` is called; return the channels with data."""
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
        # For reading and writing: a pipe without a writer would be at its end, and readable, for ever.
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
        """Return data of the events port; data of the console is appended to its log."""
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
            log.warning("machine %s exceeds the limit of its events port; the rest is ignored", run.files.id)
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
