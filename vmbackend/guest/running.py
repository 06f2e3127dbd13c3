"""Running one command of the kit's helper on a free connection of a guest, to its end."""

from __future__ import annotations

import asyncio
import time

from .asking import Answer
from .buffers import BoundedBuffer, EnoughOutput
from .commands import TIMED_OUT, RemoteCommand
from .communicate import communicate, communicate_answering
from .connection import CommandConnections
from .session import ExecResult

# Seconds beyond the guest's own deadline to wait for the helper's report of it, a command's grace included.
DEADLINE_SLACK = 5.0


async def run_remote(
    connections: CommandConnections,
    remote: RemoteCommand,
    stdin: bytes,
    timeout: float,
    max_output: int,
    *,
    reserved: bool,
    stop_after: tuple[bytes, int] | None = None,
) -> ExecResult:
    """Run a command; return its result. `timeout`: seconds, after which the guest has ended the command. Raise
    GuestUnreachable, GuestBusy.
    """
    started = time.monotonic()
    out, err = BoundedBuffer(max_output, stop_after), BoundedBuffer(max_output)
    try:
        # An exception in the block closes the connection, which ends the command; a channel whose input has
        # ended counts as closing, so the connection would be reused under a command that runs.
        async with connections.channel(remote.line, reserved=reserved) as channel:
            started = time.monotonic()
            async with asyncio.timeout(timeout + DEADLINE_SLACK):
                code = await communicate(channel, remote.preamble + stdin, out, err)
    except TimeoutError:
        code = TIMED_OUT
    except EnoughOutput:
        code = 0
    return make_result(code, out, err, time.monotonic() - started, timeout)


async def run_answering(
    connections: CommandConnections, remote: RemoteCommand, answer: Answer, timeout: float, max_output: int
) -> ExecResult:
    """Return the same for a command whose programs ask. Raise GuestUnreachable, GuestBusy."""
    started = time.monotonic()
    err = BoundedBuffer(max_output)
    try:
        async with connections.channel(remote.line, once=True) as channel:
            started = time.monotonic()
            async with asyncio.timeout(timeout + DEADLINE_SLACK):
                code = await communicate_answering(channel, remote.preamble, err, answer)
    except TimeoutError:
        code = TIMED_OUT
    return make_result(code, BoundedBuffer(0), err, time.monotonic() - started, timeout)


def make_result(code: int, out: BoundedBuffer, err: BoundedBuffer, elapsed: float, timeout: float) -> ExecResult:
    """Return the result of a command that took `elapsed` of its `timeout` seconds."""
    return ExecResult(
        exit_code=code,
        stdout=bytes(out.data),
        stderr=bytes(err.data),
        duration_ms=int(elapsed * 1000),
        truncated=out.truncated or err.truncated,
        # A command may itself exit with 124; only after the deadline it is the helper's code.
        timed_out=code == TIMED_OUT and elapsed >= timeout,
    )
