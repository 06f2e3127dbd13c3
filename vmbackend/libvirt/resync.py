"""Resync of a guest's clock and entropy, before traffic is admitted after a sleep or a pause.

Requested over a dedicated port that the guest's first process reads (`guest/src/requests.c`), without the agent or a
new process: both are ten times slower in a machine that was just restored.
"""

from __future__ import annotations

import logging
import os
import selectors
import time
from collections.abc import Iterator
from contextlib import contextmanager

from vmbackend.errors import GuestUnreachable
from vmbackend.libvirt.record import MachineDir

log = logging.getLogger(__name__)

_SECONDS = 15.0  # in total; a guest that was just restored answers within 10 ms
_CLOCK_ERROR_NS = 200_000_000
_CLOCK_TRIES = 5
_SLOW_NS = 1_000_000_000  # accepted of a host that is too busy for anything better
_ENTROPY_BYTES = 64
_READ_BYTES = 4096
_REPLY_BYTES_MAX = 65536  # a regular guest sends one line
_NO_REPLY = "The machine does not resync its clock and entropy."


def resync_clock_and_entropy(files: MachineDir) -> None:
    """Step the clock and reseed the random pool of a running machine.

    Raise GuestUnreachable unless it confirms in time, with the right time; the guest's state is unknown then.
    Not thread-safe for one machine.
    """
    deadline = time.monotonic() + _SECONDS
    lead = 0
    with _port(files) as (requests, answers):
        _discard(answers)
        for _ in range(_CLOCK_TRIES):
            asked = time.time_ns()
            guest_time = _request(requests, answers, asked + lead, deadline)
            answered = time.time_ns()
            # The clock is set when the guest reads the line: it may be behind by as much as the exchange took.
            took = answered - asked
            right = asked - _CLOCK_ERROR_NS <= guest_time <= answered + _CLOCK_ERROR_NS
            if right and took <= _CLOCK_ERROR_NS:
                return
            if not right:
                lead += (asked + answered) // 2 - guest_time
        if right and took <= _SLOW_NS:
            return
    raise GuestUnreachable("The machine's clock could not be set.")


@contextmanager
def _port(files: MachineDir) -> Iterator[tuple[int, int]]:
    """Yield both pipes of the port, opened for this request only; QEMU has them open while it lives."""
    opened: list[int] = []
    try:
        # One direction each: without QEMU this fails at once, by an error or the end of the stream.
        for way, flags in (("in", os.O_WRONLY), ("out", os.O_RDONLY)):
            path = files.requests_pipe.with_suffix(f".{way}")
            opened.append(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))
        yield opened[0], opened[1]
    except OSError as error:
        raise GuestUnreachable(_NO_REPLY) from error
    finally:
        for fd in opened:
            os.close(fd)


def _discard(answers: int) -> None:
    """Drop replies to an earlier request: at most one read, as a guest may write without end."""
    try:
        os.read(answers, _REPLY_BYTES_MAX)
    except BlockingIOError:
        return


def _request(requests: int, answers: int, now: int, deadline: float) -> int:
    """Return the guest's clock when it answered, in ns since the epoch."""
    line = f"fresh {now} {os.urandom(_ENTROPY_BYTES).hex()}\n".encode()
    if os.write(requests, line) != len(line):
        raise GuestUnreachable(_NO_REPLY)
    for words in _lines(answers, deadline):
        if words[1:2] != [b"%d" % now]:
            continue
        if words[0] == b"fresh" and len(words) == 3 and words[2].isdigit() and len(words[2]) < 20:
            return int(words[2])
        log.warning("%r", b" ".join(words)[:200])
        raise GuestUnreachable("The machine could not resync its clock and entropy.")
    raise GuestUnreachable(_NO_REPLY)


def _lines(answers: int, deadline: float) -> Iterator[list[bytes]]:
    """Yield the words of each line, until the deadline or the limit of bytes. Raise GuestUnreachable."""
    received, rest = 0, b""
    with selectors.DefaultSelector() as selector:
        selector.register(answers, selectors.EVENT_READ)
        while received < _REPLY_BYTES_MAX and selector.select(max(0.0, deadline - time.monotonic())):
            data = os.read(answers, _READ_BYTES)
            if not data:
                raise GuestUnreachable("The machine has stopped.")
            received += len(data)
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.split() for line in lines)
