"""What machines say and what becomes of them, told in order by one thread.

**Channels.** A machine's events port and its console are named pipes. The guest is hostile and may write without
end, so nothing it says goes to the host's disk unread: a pipe holds 64 KiB, then the guest waits. The thread reads
the console into a log of bounded size, and takes at most `EVENTS_BYTES_MAX` of a start from the events port.

**Death of the driver.** QEMU holds its pipes open for reading too, so what is said while nobody listens stays in
them. The next driver opens the pipes before it opens libvirt (which may end a QEMU that was powering off) and reads
on. What was read is put down in status.json before it is told: a `ready` said long ago is known to every later
driver. Between the read and that write lie microseconds; a `ready` lost in them is made good by `wait_ready`, which
takes a banner of the control port alone for a machine that ran already when the driver opened.

**Order.** libvirt's callbacks only queue; this thread reads the pipes empty before it tells of a stop, so
`main_exited` always comes before `stopped`.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from vmbackend.driver import Event, EventKind, StopReason
from vmbackend.errors import DeadlineExceeded, MachineExited
from vmbackend.libvirt.bootlog import BootLog
from vmbackend.libvirt.record import MachineDir, Status

log = logging.getLogger(__name__)

EVENTS_BYTES_MAX = 65536  # of one start; an honest guest says less than 100
_LINE_MAX = 256
# A serial port hands over its bytes one by one. After each read a console rests, so that a chatty guest costs twenty
# reads a second and not a core.
_CONSOLE_REST_SECONDS = 0.05
_READ_BYTES = 65536


@dataclass(slots=True)
class Run:
    """One machine's channels and what is known of its last start."""

    files: MachineDir
    status: Status
    console: BootLog
    events_fd: int = -1
    console_fd: int = -1
    said: int = 0
    line: bytes = b""
    starting: bool = False  # the start was asked for and libvirt has not told of it: a stop told now is an older one
    adopted: bool = False  # ran before this driver opened
    reset: bool = False  # the guest rebooted or panicked: its power-off was not a clean one
    fds: list[int] = field(default_factory=list)


class Events:
    """The thread, and the state it keeps. Methods may be called from any thread."""

    def __init__(self, boot_log_bytes: int) -> None:
        self._boot_log_bytes = boot_log_bytes
        self._runs: dict[str, Run] = {}
        self._queue: deque[Callable[[], list[Event]]] = deque()
        self._changed = threading.Condition(threading.RLock())
        self._on_event: Callable[[Event], None] | None = None
        self._thread: threading.Thread | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = -1, -1
        self._resting: deque[tuple[float, Run]] = deque()

    def start(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._work, name="machine-events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tell nothing any more and close the channels; machines keep what they say in their pipes."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._wake()
        thread.join(timeout=10)
        with self._changed:
            for run in self._runs.values():
                self._close(run)
            self._runs.clear()
            self._resting.clear()
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_read = self._wake_write = -1

    def attach(self, files: MachineDir) -> Run:
        """Take up the channels of a machine that may run; known ones stay as they are."""
        with self._changed:
            run = self._runs.get(files.id)
            if run is None:
                run = Run(files, files.read_status(), BootLog(files.boot_log, self._boot_log_bytes), adopted=True)
                self._runs[files.id] = run
                self._open(run)
            return run

    def begin(self, files: MachineDir, *, wake: bool) -> None:
        """A start follows. What an earlier start left in the channels is dropped; a waking guest is ready already."""
        with self._changed:
            self.forget(files.id)
            run = Run(files, files.read_status(), BootLog(files.boot_log, self._boot_log_bytes), starting=True)
            run.status = Status(running=True, ready=wake and run.status.ready)
            files.write_status(run.status)
            self._runs[files.id] = run
            self._open(run, fresh=True)

    def abandon(self, machine_id: str) -> None:
        """The start failed: the machine is off and was never told of."""
        with self._changed:
            run = self._runs.get(machine_id)
            if run is not None:
                run.files.write_status(Status())
            self.forget(machine_id)

    def forget(self, machine_id: str) -> None:
        with self._changed:
            run = self._runs.pop(machine_id, None)
            if run is not None:
                self._close(run)
            self._changed.notify_all()

    def status(self, machine_id: str) -> Status:
        with self._changed:
            run = self._runs.get(machine_id)
            return run.status if run else Status()

    def was_adopted(self, machine_id: str) -> bool:
        with self._changed:
            run = self._runs.get(machine_id)
            return bool(run and run.adopted)

    def started(self, machine_id: str) -> None:
        self._put(lambda: self._mark_started(machine_id))

    def was_reset(self, machine_id: str) -> None:
        self._put(lambda: self._mark_reset(machine_id))

    def stopped(self, machine_id: str, reason: StopReason) -> None:
        self._put(lambda: self._tell_stopped(machine_id, reason))

    def repeat_ready(self, machine_id: str) -> None:
        """Tell again that an adopted machine is ready: its READY may have been lost with the former driver."""
        self._put(lambda: [Event(machine_id, EventKind.READY)])

    def wait_ready(self, machine_id: str, deadline: float) -> None:
        """Until the guest said `ready`; `deadline` on the monotonic clock.

        Raises MachineExited, DeadlineExceeded.
        """
        with self._changed:
            while True:
                self.raise_if_exited(machine_id)
                if self.status(machine_id).ready:
                    return
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise DeadlineExceeded("The machine was not ready in time.")

    def wait_stopped(self, machine_id: str, seconds: float) -> bool:
        """True as soon as the machine's stop was told, False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.status(machine_id).running, seconds)

    def raise_if_exited(self, machine_id: str) -> None:
        with self._changed:
            status = self.status(machine_id)
        if not status.running:
            raise MachineExited("The machine ended before it was ready.", exit_code=status.exit_code)

    # What follows runs on the events thread, or under the lock.

    def _put(self, work: Callable[[], list[Event]]) -> None:
        self._queue.append(work)
        self._wake()

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._wake_write, b"!")

    def _work(self) -> None:
        while self._thread is threading.current_thread():
            try:
                self._turn()
            except Exception:
                log.exception("machine events")
                time.sleep(1)  # an unforeseen error must not become a busy loop

    def _turn(self) -> None:
        due = max(0.0, self._resting[0][0] - time.monotonic()) if self._resting else None
        for key, _ in self._selector.select(due):
            if key.data is None:
                with suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                continue
            with self._changed:
                run: Run = key.data
                events = self._read(run, key.fd) if key.fd in run.fds else []
            self._tell(events)
        self._rouse_consoles()
        while self._queue:
            work = self._queue.popleft()
            with self._changed:
                events = work()
            self._tell(events)

    def _rouse_consoles(self) -> None:
        with self._changed:
            while self._resting and self._resting[0][0] <= time.monotonic():
                _, run = self._resting.popleft()
                if run.console_fd in run.fds and run.console_fd not in self._selector.get_map():
                    self._selector.register(run.console_fd, selectors.EVENT_READ, run)

    def _rest(self, run: Run) -> None:
        if run.console_fd in self._selector.get_map():
            self._selector.unregister(run.console_fd)
            self._resting.append((time.monotonic() + _CONSOLE_REST_SECONDS, run))

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            try:
                if self._on_event is not None and self._thread is not None:
                    self._on_event(event)
            except Exception:
                log.exception("the receiver of %s failed", event)
            # Only now: a driver that dies before this tells of the stop again at its next start.
            if event.kind is EventKind.STOPPED:
                self._settle_stopped(event.machine_id)

    def _open(self, run: Run, *, fresh: bool = False) -> None:
        # For reading and writing: a pipe without a writer would be at its end, and selectable, for ever.
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        run.files.make()
        run.events_fd = os.open(run.files.path / "events.out", flags)
        run.console_fd = os.open(run.files.path / "console.out", flags)
        run.fds = [run.events_fd, run.console_fd]
        for fd in run.fds:
            if fresh:
                _discard(fd)
            self._selector.register(fd, selectors.EVENT_READ, run)

    def _close(self, run: Run) -> None:
        for fd in run.fds:
            with suppress(KeyError, ValueError):
                self._selector.unregister(fd)
            os.close(fd)
        run.fds = []

    def _read(self, run: Run, fd: int) -> list[Event]:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return []
        if fd == run.console_fd:
            run.console.append(data)
            self._rest(run)
            return []
        run.said += len(data)
        if run.said > EVENTS_BYTES_MAX:
            log.warning("machine %s talks too much on its events port: not heard any more", run.files.id)
            with suppress(KeyError):
                self._selector.unregister(fd)
        return self._lines(run, data)

    def _lines(self, run: Run, data: bytes) -> list[Event]:
        *lines, run.line = (run.line + data).split(b"\n")
        run.line = run.line[-_LINE_MAX:]
        events = [event for line in lines if (event := self._understand(run, line))]
        self._changed.notify_all()
        return events

    def _understand(self, run: Run, line: bytes) -> Event | None:
        words = line.strip().split()
        if words == [b"ready"]:
            self._note(run, replace(run.status, ready=True))
            return Event(run.files.id, EventKind.READY)
        if len(words) >= 2 and words[0] == b"exit" and words[1].isdigit() and len(words[1]) <= 3:
            code = int(words[1])
            self._note(run, replace(run.status, exit_code=code))
            return Event(run.files.id, EventKind.MAIN_EXITED, exit_code=code)
        return None

    def _note(self, run: Run, status: Status) -> None:
        run.status = status
        if run.files.path.exists():
            run.files.write_status(status)

    def _mark_started(self, machine_id: str) -> list[Event]:
        if machine_id in self._runs:
            self._runs[machine_id].starting = False
        return []

    def _mark_reset(self, machine_id: str) -> list[Event]:
        if machine_id in self._runs:
            self._runs[machine_id].reset = True
        return []

    def _tell_stopped(self, machine_id: str, reason: StopReason) -> list[Event]:
        run = self._runs.get(machine_id)
        if run is None or run.starting:
            return [Event(machine_id, EventKind.STOPPED, reason=reason)]
        events = self._drain(run)
        if run.reset and reason is StopReason.SHUTDOWN:
            reason = StopReason.PANICKED
        return [*events, Event(machine_id, EventKind.STOPPED, reason=reason)]

    def _drain(self, run: Run) -> list[Event]:
        # Twice a pipe's size at most: nobody writes any more, unless the guest still runs.
        events: list[Event] = []
        for fd in run.fds:
            for _ in range(2):
                events += self._read(run, fd) if run.said <= EVENTS_BYTES_MAX else []
        return events

    def _settle_stopped(self, machine_id: str) -> None:
        with self._changed:
            run = self._runs.get(machine_id)
            if run is not None and not run.starting:
                self._note(run, replace(run.status, running=False))
                self._close(run)
            self._changed.notify_all()


def _discard(fd: int) -> None:
    with suppress(BlockingIOError):
        while os.read(fd, _READ_BYTES):
            pass
