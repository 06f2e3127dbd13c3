"""The port on which the host asks a guest's first process, and what it answers: lines of limited size.

The guest is hostile: it may answer nothing, anything, or without end.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Iterator
from contextlib import contextmanager

from vmbackend.errors import GuestUnreachable
from vmbackend.libvirt.record import MachineDir

_READ_BYTES = 4096
_ANSWER_BYTES_MAX = 65536  # a regular guest sends one line


@contextmanager
def open_requests_port(files: MachineDir, no_answer: str) -> Iterator[tuple[int, int]]:
    """Open both pipes of the port, to write requests and to read answers; QEMU has them open while it lives.

    Raises GuestUnreachable, with the sentence `no_answer`, also for an OSError of the block.
    """
    opened: list[int] = []
    try:
        # One direction each: without QEMU this fails at once, by an error or the end of the stream.
        for way, flags in (("in", os.O_WRONLY), ("out", os.O_RDONLY)):
            path = files.requests_pipe.with_suffix(f".{way}")
            opened.append(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))
        yield opened[0], opened[1]
    except OSError as error:
        raise GuestUnreachable(no_answer) from error
    finally:
        for fd in opened:
            os.close(fd)


def discard_answers(answers: int) -> None:
    """Drop answers to an earlier request: at most one read, as a guest may write without end."""
    try:
        os.read(answers, _ANSWER_BYTES_MAX)
    except BlockingIOError:
        return


def send_request(requests: int, line: bytes, no_answer: str) -> None:
    """Write a line. Raise GuestUnreachable, with the sentence `no_answer`, if the guest has not read former ones."""
    if os.write(requests, line) != len(line):
        raise GuestUnreachable(no_answer)


def await_answer(answers: int, number: int, deadline: float, no_answer: str) -> list[bytes]:
    """Return the words of the first line whose second word is the number of the request.

    Raise GuestUnreachable, with the sentence `no_answer` if none came before the deadline (monotonic).
    """
    for words in read_answers(answers, deadline):
        if words[1:2] == [b"%d" % number]:
            return words
    raise GuestUnreachable(no_answer)


def read_answers(answers: int, deadline: float) -> Iterator[list[bytes]]:
    """Yield the words of each line, until the deadline (monotonic) or the limit of bytes. Raises GuestUnreachable."""
    received, rest = 0, b""
    with selectors.DefaultSelector() as selector:
        selector.register(answers, selectors.EVENT_READ)
        while received < _ANSWER_BYTES_MAX and selector.select(max(0.0, deadline - time.monotonic())):
            data = os.read(answers, _READ_BYTES)
            if not data:
                raise GuestUnreachable("The machine has stopped.")
            received += len(data)
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.split() for line in lines)
