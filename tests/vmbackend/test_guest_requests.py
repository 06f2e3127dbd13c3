"""Requests of the host over the virtio-serial port, in real machines."""

from __future__ import annotations

import os
import time

import pytest

from tests.vmbackend import vm_harness as harness
from tests.vmbackend.test_guest_kit import run, shell_image
from tests.vmbackend.test_guest_ssh import kit, plain

__all__ = ["kit", "plain", "shell_image"]
pytestmark = pytest.mark.vm
CLOCK = "/run/kit/bin/busybox date +%s"


def test_the_clock_is_stepped_at_once_and_the_reply_contains_it(plain: harness.Machine) -> None:
    status, asked, now = plain.send_requests(b"fresh 2000000000000000000 0011ff\n")[0].split()
    assert (status, asked) == ("fresh", "2000000000000000000")
    assert 2_000_000_000 * 10**9 <= int(now) < 2_000_000_060 * 10**9
    assert int(run(plain, CLOCK)[0][1]) >= 2_000_000_000
    assert plain.resync_guest(os.urandom(64))[0] == "fresh"
    assert abs(int(run(plain, CLOCK)[0][1]) - time.time()) < 60


def test_a_negative_time_is_refused(plain: harness.Machine) -> None:
    before = int(run(plain, CLOCK)[0][1])
    assert plain.send_requests(b"fresh -1000000000 00\n") == ["failed -1000000000 Invalid argument"]
    assert int(run(plain, CLOCK)[0][1]) - before < 60


def test_invalid_requests_are_ignored_and_the_next_one_is_answered(plain: harness.Machine) -> None:
    now = b"%d" % time.time_ns()
    # A line longer than any request is dropped completely.
    nonsense = (b"hello\n", b"fresh\n", b"fresh x 00\n", b"\n\0\n", b"x" * 5000 + b"\n")
    assert plain.send_requests(*nonsense, b"fresh " + now + b" 00\n")[0].split()[:2] == ["fresh", now.decode()]
    pieces = (b"fresh ", now[:5], now[5:], b" 00", b"\nfresh " + now + b" 01\n")
    assert [line.split()[1] for line in plain.send_requests(*pieces, answers=2)] == [now.decode()] * 2


def test_requests_work_after_the_host_reconnects(plain: harness.Machine) -> None:
    for _ in range(3):
        assert plain.resync_guest(os.urandom(64))[0] == "fresh"
        time.sleep(0.2)
