"""What a guest needs before traffic may enter after a sleep or a pause: the right time and new randomness.

Asked for over a port of its own that the guest's first process reads (`guest/src/requests.c`): neither the agent nor a
new process is in the way, both of which take a machine that has just been loaded ten times as long.
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

_SECONDS = 15.0  # all of it; a guest that was just loaded answers in a hundredth of a second
_CLOCK_ERROR_NS = 200_000_000
_CLOCK_TRIES = 3
_ENTROPY_BYTES = 64
_READ_BYTES = 4096
_SAID_MAX = 65536  # bytes; an honest guest says a line
_SILENT = "The machine does not renew its clock and random pool."


def resync_clock_and_entropy(files: MachineDir) -> None:
    """Step the clock and reseed the pool of a machine that runs.

    Raises GuestUnreachable where it does not say in time that it has, with the right time; neither is known then.
    One caller at a time.
    """
    deadline = time.monotonic() + _SECONDS
    lead = 0
    with _port(files) as (requests, answers):
        _discard(answers)
        for _ in range(_CLOCK_TRIES):
            asked = time.time_ns()
            told = _ask(requests, answers, asked + lead, deadline)
            answered = time.time_ns()
            if asked - _CLOCK_ERROR_NS <= told <= answered + _CLOCK_ERROR_NS:
                return
            # The line was read late by what a busy machine needs to come to it.
            lead += (asked + answered) // 2 - told
    raise GuestUnreachable("The machine's clock could not be set.")


@contextmanager
def _port(files: MachineDir) -> Iterator[tuple[int, int]]:
    """Both pipes of the port, opened only for this: QEMU has them open for as long as it lives."""
    opened: list[int] = []
    try:
        # One side each: that QEMU is gone is then told at once, by an error or the end of what can be read.
        for way, flags in (("in", os.O_WRONLY), ("out", os.O_RDONLY)):
            path = files.requests_pipe.with_suffix(f".{way}")
            opened.append(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))
        yield opened[0], opened[1]
    except OSError as error:
        raise GuestUnreachable(_SILENT) from error
    finally:
        for fd in opened:
            os.close(fd)


def _discard(answers: int) -> None:
    """What was said to somebody who no longer listened: at most a pipe's content, a guest may write without end."""
    try:
        os.read(answers, _SAID_MAX)
    except BlockingIOError:
        return


def _ask(requests: int, answers: int, now: int, deadline: float) -> int:
    """The guest's clock when it answered, in ns since the epoch."""
    line = f"fresh {now} {os.urandom(_ENTROPY_BYTES).hex()}\n".encode()
    if os.write(requests, line) != len(line):
        raise GuestUnreachable(_SILENT)
    for words in _lines(answers, deadline):
        if words[1:2] != [b"%d" % now]:
            continue
        if words[0] == b"fresh" and len(words) == 3 and words[2].isdigit() and len(words[2]) < 20:
            return int(words[2])
        log.warning("%r", b" ".join(words)[:200])
        raise GuestUnreachable("The machine could not renew its clock and random pool.")
    raise GuestUnreachable(_SILENT)


def _lines(answers: int, deadline: float) -> Iterator[list[bytes]]:
    """The words of each line, until the deadline or until the guest has said too much. Raises GuestUnreachable."""
    said, rest = 0, b""
    with selectors.DefaultSelector() as selector:
        selector.register(answers, selectors.EVENT_READ)
        while said < _SAID_MAX and selector.select(max(0.0, deadline - time.monotonic())):
            data = os.read(answers, _READ_BYTES)
            if not data:
                raise GuestUnreachable("The machine ended.")
            said += len(data)
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.split() for line in lines)
