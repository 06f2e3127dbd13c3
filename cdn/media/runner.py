"""Runner of the confined process for one file."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cdn.inspection.messages import (
    DAMAGED,
    READY,
    RESOURCES,
    Findings,
    InspectionOrder,
    VariantOrder,
    found_of,
    order_dumped,
)
from cdn.media.confinement import Confined, Level, inspection_confined

logger = logging.getLogger(__name__)

SECONDS = 30.0
_TICK_SECONDS = 0.5
_ANSWER_BYTES = 16 << 10
_END_SECONDS = 5.0
# Exit codes by a signal, directly and as bubblewrap reports it.
_OUT_OF_TIME = (-signal.SIGXCPU, 128 + signal.SIGXCPU)
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


class InspectionUnavailable(Exception):
    """Error of a process that could not be started: nothing is known of the file."""


class InspectionKilled(InspectionUnavailable):
    """Error of a process that the host ended, as the kernel does without memory. Its own limits end it otherwise.

    Whether the file is the cause is not known.
    """


def execute_inspection(
    level: Level, file: int, order: InspectionOrder, outputs: Sequence[Path], tick: Callable[[], None]
) -> Findings:
    """Inspect an open file; variants go to `outputs`, new files. `tick` is called about twice a second, and may raise.

    No process outlives the call. Raise InspectionUnavailable, InspectionKilled, BackendUnavailable, OSError.
    """
    targets: list[int] = []
    try:
        for path in outputs:
            targets.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        given = order._replace(variants=_with_descriptors(order.variants, targets))
        os.lseek(file, 0, os.SEEK_SET)
        with inspection_confined(level, order_dumped(given)) as confined:
            return _answer(order, *_execute(confined, file, targets, tick))
    finally:
        for target in targets:
            os.close(target)


def _with_descriptors(variants: Sequence[VariantOrder], targets: Sequence[int]) -> tuple[VariantOrder, ...]:
    return tuple(variant._replace(descriptor=target) for variant, target in zip(variants, targets, strict=True))


def _execute(confined: Confined, file: int, targets: list[int], tick: Callable[[], None]) -> tuple[bytes, int | None]:
    """Return the output and the exit code; the code is None if the process ran out of time or wrote too much."""
    process = subprocess.Popen(
        confined.command,
        stdin=file,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=confined.environment,
        pass_fds=(*confined.descriptors, *targets),
        start_new_session=True,
        cwd="/",
    )
    assert process.stdout is not None  # noqa: S101 - PIPE was requested
    output = process.stdout.fileno()
    try:
        answer = _read_answer(output, tick)
        if answer is not None:
            return answer, process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _end(process, output)
    return b"", None


def _read_answer(output: int, tick: Callable[[], None]) -> bytes | None:
    """Return the whole output; None if it does not end in time."""
    answer = b""
    deadline = time.monotonic() + SECONDS
    waiting = select.poll()
    waiting.register(output, select.POLLIN | select.POLLHUP)
    while time.monotonic() < deadline and len(answer) <= _ANSWER_BYTES:
        tick()
        if waiting.poll(_TICK_SECONDS * 1000):
            piece = os.read(output, _ANSWER_BYTES)
            if not piece:
                return answer
            answer += piece
    return None


def _end(process: subprocess.Popen[bytes], output: int) -> None:
    """Kill the process. If it is in another namespace the kernel kills it just afterwards: the end of its output says
    when.
    """
    if process.poll() is None:
        process.kill()
        process.wait()
    waiting = select.poll()
    waiting.register(output, select.POLLIN | select.POLLHUP)
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline and waiting.poll(_END_SECONDS * 1000) and os.read(output, _ANSWER_BYTES):
        pass
    assert process.stdout is not None  # noqa: S101
    process.stdout.close()


def _answer(order: InspectionOrder, output: bytes, code: int | None) -> Findings:
    """Return the findings. Raise InspectionUnavailable if the process did not come to the file, and
    InspectionKilled.
    """
    ready, _, rest = output.partition(b"\n")
    if code is None or code in _OUT_OF_TIME:
        logger.warning("the inspection of a file of the type %s took too long", order.content_type)
        return Findings(order.content_type, reason=RESOURCES)
    if ready != READY.encode():
        raise InspectionUnavailable(f"The process ended with exit code {code} before it could inspect the file.")
    if code in _KILLED:
        raise InspectionKilled("The process was killed while it inspected the file.")
    try:
        found = found_of(rest)
    except ValueError:
        logger.warning("the inspection of a file of the type %s ended with exit code %s", order.content_type, code)
        return Findings(order.content_type, reason=DAMAGED)
    complete = not found.reason and len(found.variants) != len(order.variants)
    return found._replace(reason=DAMAGED) if complete else found
