"""Resync of clock and entropy, with a simulated guest at the other end of the pipes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vmbackend.errors import GuestUnreachable
from vmbackend.libvirt import requests_port, resync
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.resync import resync_clock_and_entropy

SECOND = 1_000_000_000
MakeReply = Callable[[int, bytes], bytes]


@pytest.fixture
def files(tmp_path: Path) -> MachineDir:
    made = MachineDir(tmp_path, "m1")
    made.create()
    return made


@contextmanager
def guest(files: MachineDir, make_reply: MakeReply) -> Iterator[list[bytes]]:
    """Open the pipes as QEMU does and reply to each line; yields the lines received."""
    received: list[bytes] = []
    requests, replies = (os.open(f"{files.requests_pipe}.{way}", os.O_RDWR) for way in ("in", "out"))

    def serve() -> None:
        rest = b""
        while b"\0" not in rest:
            *lines, rest = (rest + os.read(requests, 4096)).split(b"\n")
            for line in lines:
                received.append(line)
                os.write(replies, make_reply(int(line.split()[1]), line))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield received
    finally:
        os.write(requests, b"\0")
        thread.join()
        os.close(requests)
        os.close(replies)


def test_each_resync_sends_the_time_and_new_entropy(files: MachineDir) -> None:
    with guest(files, lambda sent_time, line: b"fresh %d %d\n" % (sent_time, time.time_ns())) as received:
        before = time.time_ns()
        resync_clock_and_entropy(files)
        resync_clock_and_entropy(files)
    words = [line.split() for line in received]
    assert [(word, len(entropy)) for word, _, entropy in words] == [(b"fresh", 128)] * 2
    assert before <= int(words[0][1]) <= int(words[1][1]) <= time.time_ns()
    assert words[0][2] != words[1][2]


def test_a_guest_that_answers_late_is_sent_a_time_ahead(files: MachineDir) -> None:
    behind = 100 * SECOND

    def late_reply(sent_time: int, line: bytes) -> bytes:
        # Its clock is the time that was sent, less the delay.
        return b"fresh %d %d\n" % (sent_time, sent_time - behind)

    with guest(files, late_reply) as received:
        resync_clock_and_entropy(files)
    first, second = (int(line.split()[1]) for line in received)
    assert behind // 2 < second - first < behind * 2


def test_a_clock_that_was_set_late_is_set_again(files: MachineDir) -> None:
    """It is behind by the time in which the line waited, although the reply contains what was sent."""
    waits = [0.5, 0.0]

    def slow_reply(sent_time: int, line: bytes) -> bytes:
        time.sleep(waits.pop(0))
        return b"fresh %d %d\n" % (sent_time, sent_time)

    with guest(files, slow_reply) as received:
        resync_clock_and_entropy(files)
    assert len(received) == 2


def test_a_clock_that_stays_wrong_raises_guest_unreachable(files: MachineDir) -> None:
    with (
        guest(files, lambda sent_time, line: b"fresh %d 5\n" % sent_time),
        pytest.raises(GuestUnreachable, match="clock"),
    ):
        resync_clock_and_entropy(files)


@pytest.mark.parametrize(
    "reply",
    [
        b"failed %d Invalid argument\n",
        b"fresh %d\n",
        b"fresh %d -5\n",
        b"fresh %d 99999999999999999999999\n",
        b"\xff\xfe %d \0\n",
    ],
)
def test_an_invalid_reply_raises_guest_unreachable(files: MachineDir, reply: bytes) -> None:
    with (
        guest(files, lambda sent_time, line: reply % sent_time),
        pytest.raises(GuestUnreachable, match="could not resync"),
    ):
        resync_clock_and_entropy(files)


def test_replies_to_other_requests_are_ignored(files: MachineDir) -> None:
    def reply_after_others(sent_time: int, line: bytes) -> bytes:
        return b"fresh 1 1\nfailed 2 x\n\nnonsense\nfresh %d %d\n" % (sent_time, time.time_ns())

    with guest(files, reply_after_others):
        resync_clock_and_entropy(files)


def test_output_before_the_request_is_dropped(files: MachineDir) -> None:
    with guest(files, lambda sent_time, line: b"fresh %d %d\n" % (sent_time, time.time_ns())) as received:
        out = os.open(f"{files.requests_pipe}.out", os.O_RDWR | os.O_NONBLOCK)
        os.write(out, b"x" * 65536)
        resync_clock_and_entropy(files)
        os.close(out)
    assert len(received) == 1


def test_an_endless_reply_raises_guest_unreachable(files: MachineDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_port, "_ANSWER_BYTES_MAX", 8192)
    endless = guest(files, lambda sent_time, line: b"x" * 30_000 + b"\n")
    with endless, pytest.raises(GuestUnreachable, match="does not resync"):
        resync_clock_and_entropy(files)


def test_a_silent_guest_raises_guest_unreachable(files: MachineDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resync, "_SECONDS", 0.1)
    with guest(files, lambda sent_time, line: b"."), pytest.raises(GuestUnreachable, match="does not resync"):
        resync_clock_and_entropy(files)


def test_resync_of_a_machine_without_a_process_raises_at_once(files: MachineDir) -> None:
    with pytest.raises(GuestUnreachable):
        resync_clock_and_entropy(files)
    (files.path / "requests.in").unlink()
    with pytest.raises(GuestUnreachable):
        resync_clock_and_entropy(files)


def test_a_process_that_exits_during_resync_raises_at_once(files: MachineDir) -> None:
    requests = os.open(f"{files.requests_pipe}.in", os.O_RDWR)
    replies = os.open(f"{files.requests_pipe}.out", os.O_RDWR)

    def exit_process() -> None:
        os.read(requests, 10)
        os.close(replies)

    exiting = threading.Thread(target=exit_process)
    exiting.start()
    with pytest.raises(GuestUnreachable, match="stopped"):
        resync_clock_and_entropy(files)
    exiting.join()
    os.close(requests)
