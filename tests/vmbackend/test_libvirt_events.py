"""The channels that report events of a machine, with simulated QEMU and libvirt."""

from __future__ import annotations

import os
import threading
import time

import pytest

from tests.small_disk import small_disk
from vmbackend.driver import Event, EventKind, MachineEnd, StopReason
from vmbackend.errors import MachineExited

pytest.importorskip("libvirt")

from vmbackend.libvirt.channels import EVENTS_BYTES_MAX
from vmbackend.libvirt.events import Events
from vmbackend.libvirt.record import MachineDir, Status


def _wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestEvents:
    @pytest.fixture
    def reported(self):
        return []

    @pytest.fixture
    def channels(self, reported):
        made = Events(4096)
        made.start(reported.append)
        yield made
        made.stop()

    @pytest.fixture
    def files(self, short):
        self.descriptors = []
        made = MachineDir(short, "m1")
        made.create()
        yield made
        for descriptor in self.descriptors:
            os.close(descriptor)

    def _write_pipe(self, files, data, name="events.out"):
        """Write and leave the pipe open, as QEMU does: a pipe without an open end loses its content."""
        descriptor = os.open(files.path / name, os.O_RDWR | os.O_NONBLOCK)
        self.descriptors.append(descriptor)
        os.write(descriptor, data)

    def test_the_exit_code_is_reported_before_the_stop(self, channels, files, reported):
        channels.begin_start(files, wake=False)
        channels.report_started("m1")
        self._write_pipe(files, b"ready\nexit 7 exited\n")
        channels.report_stopped("m1", StopReason.SHUTDOWN)
        _wait_until(lambda: len(reported) == 3)
        assert [event.kind for event in reported] == [EventKind.READY, EventKind.MAIN_EXITED, EventKind.STOPPED]
        assert reported[1].exit_code == 7
        _wait_until(lambda: not files.read_status().running)

    def test_an_exit_code_is_known_while_the_receiver_of_events_is_busy(self, files):
        reported, busy = [], threading.Event()
        events = Events(4096)
        events.start(lambda event: (reported.append(event), busy.wait(10)))
        try:
            events.begin_start(files, wake=False)
            events.report_started("m1")
            self._write_pipe(files, b"ready\n")
            _wait_until(lambda: reported)
            self._write_pipe(files, b"exit 3 0\n")
            assert events.last_end(files, StopReason.SHUTDOWN) == MachineEnd(StopReason.SHUTDOWN, 3)
            busy.set()
            events.report_stopped("m1", StopReason.SHUTDOWN)
            _wait_until(lambda: len(reported) == 3)
        finally:
            busy.set()
            events.stop()
        assert [event.kind for event in reported] == [EventKind.READY, EventKind.MAIN_EXITED, EventKind.STOPPED]
        assert files.read_status() == Status(ready=True, exit_code=3, end=StopReason.SHUTDOWN)

    def test_why_a_process_ended_is_final_once_its_reports_are_processed(self, files):
        """To libvirt a panic is a power-off; the report that tells them apart waits behind the receiver of events."""
        reported, busy = [], threading.Event()
        events = Events(4096)
        events.start(lambda event: (reported.append(event), busy.wait(10)))
        try:
            events.begin_start(files, wake=False)
            events.report_started("m1")
            self._write_pipe(files, b"ready\n")
            _wait_until(lambda: reported)
            events.report_reset("m1")
            assert not events.last_end(files, StopReason.SHUTDOWN).is_final
            events.report_stopped("m1", StopReason.SHUTDOWN)
            assert not events.last_end(files, StopReason.SHUTDOWN).is_final
            busy.set()
            _wait_until(lambda: len(reported) == 2)
            assert reported[1].reason is StopReason.PANICKED
            assert events.last_end(files, StopReason.SHUTDOWN) == MachineEnd(StopReason.PANICKED)
        finally:
            busy.set()
            events.stop()
        # libvirt forgets the reason with its process, and never knew that of a panic.
        assert Events(4096).last_end(files, StopReason.CRASHED) == MachineEnd(StopReason.PANICKED)

    def test_an_end_is_final_when_its_event_is_delivered(self, files):
        ends = []
        events = Events(4096)
        events.start(lambda event: ends.append(events.last_end(files, StopReason.SHUTDOWN)))
        try:
            events.begin_start(files, wake=False)
            events.report_started("m1")
            events.report_stopped("m1", StopReason.CRASHED)
            _wait_until(lambda: ends)
        finally:
            events.stop()
        assert ends == [MachineEnd(StopReason.CRASHED)]

    def test_a_stop_of_the_previous_run_does_not_say_why_the_new_one_ended(self, channels, files, reported):
        channels.begin_start(files, wake=False)
        channels.report_started("m1")
        _wait_until(lambda: not channels._runs["m1"].starting)
        channels.begin_start(files, wake=False)
        channels.report_stopped("m1", StopReason.SHUTDOWN)
        _wait_until(lambda: len(reported) == 1)
        assert not channels.last_end(files, StopReason.CRASHED).is_final
        channels.report_started("m1")
        channels.report_stopped("m1", StopReason.CRASHED)
        _wait_until(lambda: len(reported) == 2)
        assert channels.last_end(files, StopReason.CRASHED) == MachineEnd(StopReason.CRASHED)

    @pytest.mark.parametrize("stored", ['{"running": false, "ready": true, "exit_code": null}', "[]", '{"end": "x"}'])
    def test_a_status_of_an_earlier_version_or_a_damaged_one_leaves_the_reason_to_libvirt(self, files, stored):
        (files.path / "status.json").write_text(stored)
        assert Events(4096).last_end(files, StopReason.DESTROYED) == MachineEnd(StopReason.DESTROYED)

    def test_a_guest_that_repeats_itself_is_heard_once(self, channels, files, reported, monkeypatch):
        written = []
        store = MachineDir.write_status

        def write_status(directory, status):
            written.append(status)
            store(directory, status)

        monkeypatch.setattr(MachineDir, "write_status", write_status)
        channels.begin_start(files, wake=False)
        channels.report_started("m1")
        before = len(written)
        self._write_pipe(files, b"ready\n" * 2000 + b"exit 7 0\n" + b"exit 8 0\nready\n" * 2000)
        channels.report_stopped("m1", StopReason.SHUTDOWN)
        _wait_until(lambda: not files.read_status().running)
        assert [(event.kind, event.exit_code) for event in reported[:2]] == [
            (EventKind.READY, None), (EventKind.MAIN_EXITED, 7),
        ]  # fmt: skip
        assert len(reported) == 3
        assert len(written) - before == 3

    @pytest.mark.host
    def test_what_a_guest_reports_counts_although_a_full_disk_cannot_store_it(self, channels, files, short, reported):
        with small_disk(short, 1) as disk:
            files.create()
            channels.begin_start(files, wake=False)
            channels.report_started("m1")
            disk.fill()
            self._write_pipe(files, b"ready\nexit 7 exited\n")
            channels.wait_ready("m1", time.monotonic() + 120)
            _wait_until(lambda: len(reported) == 2)
            assert [event.kind for event in reported] == [EventKind.READY, EventKind.MAIN_EXITED]
            channels.remove_run("m1")

    def test_lines_written_without_a_driver_are_read_by_the_next(self, channels, files, reported):
        files.write_status(Status(running=True))
        self._write_pipe(files, b"ready\n")
        channels.adopt(files)
        channels.wait_ready("m1", time.monotonic() + 120)
        assert files.read_status().ready

    def test_a_stop_of_the_previous_run_does_not_end_the_new_one(self, channels, files, reported):
        channels.begin_start(files, wake=False)
        channels.report_stopped("m1", StopReason.DESTROYED)
        channels.report_started("m1")
        _wait_until(lambda: reported)
        assert channels.status("m1").running

    def test_wait_ready_raises_at_once_when_the_machine_stops(self, channels, files):
        channels.begin_start(files, wake=False)
        channels.report_started("m1")
        threading.Timer(0.1, channels.report_stopped, ("m1", StopReason.CRASHED)).start()
        started = time.monotonic()
        with pytest.raises(MachineExited):
            channels.wait_ready("m1", started + 30)
        assert time.monotonic() - started < 25

    def test_a_reset_is_reported_as_a_panic(self, channels, files, reported):
        channels.begin_start(files, wake=False)
        channels.report_started("m1")
        channels.report_reset("m1")
        channels.report_stopped("m1", StopReason.SHUTDOWN)
        _wait_until(lambda: reported)
        assert reported[0].reason is StopReason.PANICKED

    def test_invalid_lines_on_the_port_are_not_events(self, channels, files, reported):
        channels.begin_start(files, wake=False)
        channels.report_started("m1")
        self._write_pipe(files, b"\xff\x00\nexit\nexit -1\nexit 99999 x\nready now\n" + b"x" * 2000 + b"\nready\n")
        _wait_until(lambda: reported)
        assert reported == [Event("m1", EventKind.READY)]

    def test_events_of_a_guest_that_floods_the_port_are_ignored(self, channels, files, reported):
        channels.begin_start(files, wake=False)
        descriptor = os.open(files.path / "events.out", os.O_RDWR | os.O_NONBLOCK)
        sent, deadline = 0, time.monotonic() + 1
        while time.monotonic() < deadline:
            try:
                sent += os.write(descriptor, b"y\n" * 4096)
            except BlockingIOError:
                time.sleep(0.01)
        os.close(descriptor)
        assert sent <= 4 * EVENTS_BYTES_MAX
        assert reported == []

    def test_a_failing_callback_does_not_stop_later_events(self, short):
        reported = []

        def receive(event):
            reported.append(event)
            raise RuntimeError

        channels = Events(4096)
        channels.start(receive)
        try:
            channels.report_stopped("a", StopReason.CRASHED)
            channels.report_stopped("b", StopReason.CRASHED)
            _wait_until(lambda: len(reported) == 2)
        finally:
            channels.stop()
