"""Resync of a guest's clock and entropy, before traffic is admitted after a sleep or a pause.

Requested over a dedicated port that the guest's first process reads (`guest/src/requests.c`), without the agent or a
new process: both are ten times slower in a machine that was just restored.
"""

from __future__ import annotations

import logging
import os
import time

from vmbackend.errors import GuestUnreachable
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.requests_port import await_answer, discard_answers, open_requests_port, send_request

log = logging.getLogger(__name__)

_SECONDS = 15.0  # in total; a guest that was just restored answers within 10 ms
_CLOCK_ERROR_NS = 200_000_000
_CLOCK_TRIES = 5
_SLOW_NS = 1_000_000_000  # accepted of a host that is too busy for anything better
_ENTROPY_BYTES = 64
_NO_REPLY = "The machine does not resync its clock and entropy."


def resync_clock_and_entropy(files: MachineDir) -> None:
    """Step the clock and reseed the random pool of a running machine.

    Raise GuestUnreachable unless it confirms in time, with the right time; the guest's state is unknown then.
    Not thread-safe for one machine.
    """
    deadline = time.monotonic() + _SECONDS
    lead = 0
    with open_requests_port(files, _NO_REPLY) as (requests, answers):
        discard_answers(answers)
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


def _request(requests: int, answers: int, now: int, deadline: float) -> int:
    """Return the guest's clock when it answered, in ns since the epoch."""
    line = f"fresh {now} {os.urandom(_ENTROPY_BYTES).hex()}\n".encode()
    send_request(requests, line, _NO_REPLY)
    words = await_answer(answers, now, deadline, _NO_REPLY)
    if words[0] == b"fresh" and len(words) == 3 and words[2].isdigit() and len(words[2]) < 20:
        return int(words[2])
    log.warning("%r", b" ".join(words)[:200])
    raise GuestUnreachable("The machine could not resync its clock and entropy.")
