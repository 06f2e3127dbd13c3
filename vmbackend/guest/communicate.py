"""Communication with a running command: write its input, read both outputs, wait for its exit code."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress

import asyncssh

from vmbackend.errors import GuestUnreachable

from .connection import Channel
from .translate import UNREACHABLE, translate_errors

_CHUNK = 32 * 1024


class BoundedBuffer:
    """The first `limit` bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self.data = bytearray()
        self.truncated = False
        self._limit = limit

    def append(self, block: bytes) -> None:
        """Append; data beyond the limit is dropped and sets `truncated`."""
        free = self._limit - len(self.data)
        self.data += block[:free]
        self.truncated = self.truncated or len(block) > free


async def communicate(channel: Channel, stdin: bytes, out: BoundedBuffer, err: BoundedBuffer) -> int:
    """Run the command to its end; returns its exit code.

    Raises GuestUnreachable. Cancellation, such as the caller's timeout, stops the input only.
    """
    process = channel.process
    feeding = asyncio.ensure_future(_feed(process.stdin, stdin))
    try:
        with translate_errors():
            await asyncio.gather(_drain(process.stdout, out), _drain(process.stderr, err))
            await process.channel.wait_closed()
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    return _exit_code(process)


async def _feed(stdin: asyncssh.SSHWriter[bytes], data: bytes) -> None:
    # A command may exit without reading its input.
    with suppress(OSError, asyncssh.Error):
        for start in range(0, len(data), _CHUNK):
            stdin.write(data[start : start + _CHUNK])
            await stdin.drain()
        stdin.write_eof()


async def _drain(stream: asyncssh.SSHReader[bytes], buffer: BoundedBuffer) -> None:
    while block := await stream.read(_CHUNK):
        buffer.append(block)


def _exit_code(process: asyncssh.SSHClientProcess[bytes]) -> int:
    killed = process.exit_signal
    if killed is not None:
        number = getattr(signal, f"SIG{killed[0]}", signal.SIGKILL)
        return 128 + int(number)
    if process.exit_status is None:
        raise GuestUnreachable(UNREACHABLE)
    return process.exit_status
