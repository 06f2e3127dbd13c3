"""One way to give a guest another identity: the message lies in its port before its CPUs go on, and it must answer.

Until then no packet may pass and no program of its user runs; a guest that does not answer as asked is ended by the
caller.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from vmbackend.errors import BackendError, GuestUnreachable
from vmbackend.guest.load_message import LoadMessage
from vmbackend.libvirt import domain
from vmbackend.libvirt.record import MachineDir
from vmbackend.libvirt.requests_port import discard_answers, open_requests_port, read_answers

log = logging.getLogger(__name__)

_CLOCK_ERROR_NS = 500_000_000
# Pipes hold 64 KiB by default, and a message may have more.
_MESSAGE_PIPE_BYTES = 1 << 20
_NO_ANSWER = "The machine does not answer to its new identity."


def exchange_message(target: Any, files: MachineDir, message: LoadMessage, seconds: float) -> None:
    """Let the CPUs of a paused machine go on with the message before them, and wait for the answer.

    Raise GuestUnreachable unless the guest confirms each item, this generation and the right time within `seconds`, or
    if its process does not let them go on within as long: that one is ended. Raise BackendUnavailable. Its CPUs may run
    then. A slow answer leaves `files.late_clock`.
    """
    with open_requests_port(files, _NO_ANSWER) as (requests, answers):
        with suppress(OSError):
            fcntl.fcntl(requests, fcntl.F_SETPIPE_SZ, _MESSAGE_PIPE_BYTES)
        discard_answers(answers)
        sent = time.time_ns()
        encoded = message.encode(sent)
        if os.write(requests, encoded) != len(encoded):
            raise GuestUnreachable("The machine's configuration does not fit into its port.")
        with _ended_after(target, seconds):
            domain.resume_domain(target)
        if _require_answer(answers, message, sent, seconds):
            files.late_clock.touch(0o600)


@contextmanager
def _ended_after(target: Any, seconds: float) -> Iterator[None]:
    """End the process if the block takes longer: libvirt waits without limit for one that does not answer.

    Raise GuestUnreachable then.
    """
    ended = threading.Event()

    def end() -> None:
        ended.set()
        log.error("%s does not answer to libvirt, and is ended", target.name())
        with suppress(BackendError):
            domain.destroy_domain(target)

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield
    except BackendError as error:
        if ended.is_set():
            raise GuestUnreachable(_NO_ANSWER) from error
        raise
    finally:
        timer.cancel()
        timer.join()
    if ended.is_set():
        raise GuestUnreachable(_NO_ANSWER)


def _require_answer(answers: int, message: LoadMessage, sent: int, seconds: float) -> bool:
    """Return whether the guest's clock may be late, as the answer took long. `sent`: when it was asked, in ns.

    Raise GuestUnreachable unless it names each item, this generation and a time since then.
    """
    for words in read_answers(answers, time.monotonic() + seconds):
        complete = words[:-1] == message.expected_answer()
        clock, now = int(words[-1][:20]) if complete and words[-1].isdigit() else 0, time.time_ns()
        if sent - _CLOCK_ERROR_NS <= clock <= now + _CLOCK_ERROR_NS:
            return now - clock > _CLOCK_ERROR_NS
        log.warning("%s: %r", message.kind.word, b" ".join(words)[:200])
        raise GuestUnreachable("The machine could not take its identity.")
    raise GuestUnreachable(_NO_ANSWER)
