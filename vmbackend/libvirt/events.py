"""Events of machines, delivered in order by one thread.

**Channels.** A machine's events port and its console are named pipes, read by `channels.py`.

**Death of the driver.** QEMU has its pipes open for reading, too, so data that is written without a driver stays in
them. The next driver opens the pipes before libvirt (which may end a QEMU that was powering off) and continues to
read. Data is stored in status.json before it is reported: every later driver knows an earlier `ready`. A driver that
dies in the microseconds between the read and that write loses the `ready`; therefore `wait_ready` accepts a banner of
the control port for a machine that was running when the driver opened.

**Order.** libvirt's callbacks only queue; this thread drains the pipes before it reports a stop, so `main_exited`
always comes before `stopped`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from vmbackend.driver import Event, EventKind, MachineEnd, StopReason
from vmbackend.errors import BackendUnavailable, DeadlineExceeded, MachineExited
from vmbackend.libvirt.bootlog import BootLog
from vmbackend.libvirt.channels import Channels, MachineRun
from vmbackend.libvirt.record import MachineDir, Status

log = logging.getLogger(__name__)

_LINE_MAX = 256


class Events:
    """The thread and its state. Methods may be called from any thread."""

    def __init__(self, boot_log_bytes: int) -> None:
        self._boot_log_bytes = boot_log_bytes
        self._runs: dict[str, MachineRun] = {}
        self._queue: deque[Callable[[], list[Event]]] = deque()
        self._changed = threading.Condition(threading.RLock())
        self._on_event: Callable[[Event], None] | None = None
        self._thread: threading.Thread | None = None
        self._open_channels: Channels | None = None

    def start(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self._open_channels = Channels()
        self._thread = threading.Thread(target=self._run, name="machine-events", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop reporting and close the channels; further output of machines stays in their pipes."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._channels.wake()
        thread.join(timeout=10)
        with self._changed:
            for run in self._runs.values():
                self._channels.close_run(run)
            self._runs.clear()
            self._channels.close()
            self._open_channels = None

    def adopt(self, files: MachineDir) -> MachineRun:
        """Open the channels of a machine that may be running. Idempotent."""
        with self._changed:
            run = self._runs.get(files.id)
            if run is None:
                run = MachineRun(
                    files, files.read_status(), BootLog(files.boot_log, self._boot_log_bytes), adopted=True
                )
                self._runs[files.id] = run
                self._channels.open_run(run)
            return run

    def begin_start(self, files: MachineDir, *, wake: bool) -> None:
        """Prepare for a start: output of an earlier start is dropped. A machine that wakes keeps its `ready` status."""
        with self._changed:
            self.remove_run(files.id)
            run = MachineRun(files, files.read_status(), BootLog(files.boot_log, self._boot_log_bytes), starting=True)
            run.former = replace(run.status, running=False)
            run.status = Status(running=True, ready=wake and run.status.ready)
            files.write_status(run.status)
            self._runs[files.id] = run
            # A guest may have written just before its memory was saved.
            self._channels.open_run(run, fresh=not wake)

    def cancel_start(self, machine_id: str, *, asleep: bool = False) -> None:
        """Cancel a start that failed: the machine is off, or asleep as before. Nothing is reported."""
        with self._changed:
            run = self._runs.get(machine_id)
            if run is not None:
                run.files.write_status(run.former if asleep else Status())
            self.remove_run(machine_id)

    def remove_run(self, machine_id: str) -> None:
        with self._changed:
            run = self._runs.pop(machine_id, None)
            if run is not None:
                self._channels.close_run(run)
            self._changed.notify_all()

    def status(self, machine_id: str) -> Status:
        with self._changed:
            run = self._runs.get(machine_id)
            return run.status if run else Status()

    def last_end(self, files: MachineDir, observed: StopReason) -> MachineEnd:
        """Return how the last process of a machine without a process ended. `observed`: the reason that libvirt has.

        Its output that this driver had not read is read now; those events are still delivered. To libvirt a guest's
        reset is a power-off, so its reason is not final while reports of that process may be queued.
        """
        status = self._last_status(files)
        if status.end is not None and observed is not StopReason.LOST:
            return MachineEnd(status.end, status.exit_code)
        # Only a power-off follows an exit code.
        known = not status.running or status.exit_code is not None or observed is StopReason.LOST
        return MachineEnd(observed, status.exit_code, is_final=known)

    def _last_status(self, files: MachineDir) -> Status:
        with self._changed:
            run = self._runs.get(files.id)
            if run is None or run.starting:
                return files.read_status()
            if events := self._drain(run):
                self._put(lambda: events)
            return run.status

    def was_adopted(self, machine_id: str) -> bool:
        with self._changed:
            run = self._runs.get(machine_id)
            return bool(run and run.adopted)

    def report_started(self, machine_id: str) -> None:
        self._put(lambda: self._mark_started(machine_id))

    def report_reset(self, machine_id: str) -> None:
        self._put(lambda: self._mark_reset(machine_id))

    def report_stopped(self, machine_id: str, reason: StopReason) -> None:
        self._put(lambda: self._stopped_events(machine_id, reason))

    def report_ready_again(self, machine_id: str) -> None:
        """Report again that an adopted machine is ready: its READY may have been lost with the former driver."""
        self._put(lambda: [Event(machine_id, EventKind.READY)])

    def wait_ready(self, machine_id: str, deadline: float) -> None:
        """Wait until the guest has reported `ready`; `deadline` on the monotonic clock.

        Raise MachineExited, DeadlineExceeded.
        """
        with self._changed:
            while True:
                self.raise_if_exited(machine_id)
                if self.status(machine_id).ready:
                    return
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise DeadlineExceeded("The machine was not ready in time.")

    def wait_stopped(self, machine_id: str, seconds: float) -> bool:
        """Return True as soon as the machine's stop was reported, False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.status(machine_id).running, seconds)

    def raise_if_exited(self, machine_id: str) -> None:
        with self._changed:
            status = self.status(machine_id)
        if not status.running:
            raise MachineExited("The machine stopped before it was ready.", exit_code=status.exit_code)

    # The methods below run on the events thread or with the lock held.

    @property
    def _channels(self) -> Channels:
        if self._open_channels is None:
            raise BackendUnavailable("The hypervisor is not connected.")
        return self._open_channels

    def _put(self, work: Callable[[], list[Event]]) -> None:
        self._queue.append(work)
        channels = self._open_channels
        if channels is not None:
            channels.wake()

    def _run(self) -> None:
        while self._thread is threading.current_thread():
            try:
                self._process_once()
            except Exception:
                log.exception("machine events")
                time.sleep(1)  # limits the rate of an unexpected error

    def _process_once(self) -> None:
        channels = self._channels
        for run, fd in channels.wait():
            with self._changed:
                events = self._read(run, fd) if fd in run.fds else []
            self._deliver(events)
        with self._changed:
            channels.resume_consoles()
        while self._queue:
            work = self._queue.popleft()
            with self._changed:
                events = work()
            self._deliver(events)

    def _deliver(self, events: list[Event]) -> None:
        for event in events:
            try:
                if self._on_event is not None and self._thread is not None:
                    self._on_event(event)
            except Exception:
                log.exception("the receiver of %s failed", event)
            # After the delivery: a driver that dies before this reports the stop again at its next start.
            if event.kind is EventKind.STOPPED:
                self._store_stopped(event.machine_id)

    def _read(self, run: MachineRun, fd: int) -> list[Event]:
        data = self._channels.read(run, fd)
        return self._lines(run, data) if data else []

    def _lines(self, run: MachineRun, data: bytes) -> list[Event]:
        *lines, run.line = (run.line + data).split(b"\n")
        run.line = run.line[-_LINE_MAX:]
        events = [event for line in lines if (event := self._parse_line(run, line))]
        self._changed.notify_all()
        return events

    def _parse_line(self, run: MachineRun, line: bytes) -> Event | None:
        """Return the event of a line. Each kind counts once in a start: a hostile guest has room for ten thousand
        lines, and each takes a write of the status and work of the receiver, which is the same for all machines.
        """
        words = line.strip().split()
        if words == [b"ready"]:
            if run.status.ready:
                return None
            self._update_status(run, replace(run.status, ready=True))
            return Event(run.files.id, EventKind.READY)
        if len(words) >= 2 and words[0] == b"exit" and words[1].isdigit() and len(words[1]) <= 3:
            if run.status.exit_code is not None:
                return None
            code = int(words[1])
            self._update_status(run, replace(run.status, exit_code=code))
            return Event(run.files.id, EventKind.MAIN_EXITED, exit_code=code)
        return None

    def _update_status(self, run: MachineRun, status: Status) -> None:
        run.status = status
        if run.files.path.exists():
            try:
                run.files.write_status(status)
            except BackendUnavailable as error:
                # A full disk. The guest's reports count all the same, as long as this driver lives.
                log.warning("machine %s: its status is not stored: %s", run.files.id, error)

    def _mark_started(self, machine_id: str) -> list[Event]:
        if machine_id in self._runs:
            self._runs[machine_id].starting = False
        return []

    def _mark_reset(self, machine_id: str) -> list[Event]:
        if machine_id in self._runs:
            self._runs[machine_id].reset = True
        return []

    def _stopped_events(self, machine_id: str, reason: StopReason) -> list[Event]:
        run = self._runs.get(machine_id)
        if run is None or run.starting:
            return [Event(machine_id, EventKind.STOPPED, reason=reason)]
        events = self._drain(run)
        if run.reset and reason is StopReason.SHUTDOWN:
            reason = StopReason.PANICKED
        # Before the delivery: the receiver asks `last_end` whether the event is that of the last process.
        run.status = replace(run.status, end=reason)
        return [*events, Event(machine_id, EventKind.STOPPED, reason=reason)]

    def _drain(self, run: MachineRun) -> list[Event]:
        # At most twice a pipe's size: there are no writers any more, unless the guest still runs.
        events: list[Event] = []
        for fd in run.fds:
            for _ in range(2):
                events += [] if run.exceeded_limit else self._read(run, fd)
        return events

    def _store_stopped(self, machine_id: str) -> None:
        with self._changed:
            run = self._runs.get(machine_id)
            if run is not None and not run.starting:
                self._update_status(run, replace(run.status, running=False))
                self._channels.close_run(run)
            self._changed.notify_all()
