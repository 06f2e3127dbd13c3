"""Communication with a running command: write its input, read both outputs, wait for its exit code."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable
from contextlib import suppress
from typing import Any

import asyncssh

from vmbackend.errors import DeadlineExceeded, GuestUnreachable

from .asking import Answer, answer_questions
from .buffers import BoundedBuffer
from .commands import TIMED_OUT
from .connection import Channel
from .sources import closing_source
from .translate import UNREACHABLE, translate_errors

_CHUNK = 32 * 1024
_STREAMED_CHUNK = 256 * 1024


async def communicate(channel: Channel, stdin: bytes, out: BoundedBuffer, err: BoundedBuffer) -> int:
    """Run the command to its end; return its exit code.

    Raise GuestUnreachable, EnoughOutput. Cancellation, such as the caller's timeout, stops the input only.
    """
    process = channel.process
    feeding = asyncio.ensure_future(feed_input(process.stdin, stdin))
    return await _finish(process, feeding, (_drain(process.stdout, out), _drain(process.stderr, err)))


async def communicate_answering(channel: Channel, preamble: bytes, err: BoundedBuffer, answer: Answer) -> int:
    """Return the same for a command whose programs ask (asking.py). Raise GuestUnreachable."""
    process = channel.process
    feeding = asyncio.ensure_future(_write(process.stdin, preamble))
    answering = answer_questions(process.stdout, process.stdin, answer)
    return await _finish(process, feeding, (answering, _drain(process.stderr, err)))


async def read_output(channel: Channel, preamble: bytes, err: BoundedBuffer) -> AsyncGenerator[bytes, None]:
    """Yield the output of a command as it comes; the guest waits while it is not read. Raise GuestUnreachable.

    At its end without an exit code, as if the connection was lost, GuestUnreachable is raised, too, and
    DeadlineExceeded if the guest's own deadline has ended the command.
    """
    process = channel.process
    feeding, draining = feed_input(process.stdin, preamble), _drain(process.stderr, err)
    others = [asyncio.ensure_future(feeding), asyncio.ensure_future(draining)]
    try:
        while block := await _next_block(process):
            yield block
        with translate_errors():
            await process.channel.wait_closed()
    finally:
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    if exit_code_of(process) == TIMED_OUT:
        raise DeadlineExceeded("The machine did not finish in time.")


async def _next_block(process: asyncssh.SSHClientProcess[bytes]) -> bytes:
    with translate_errors():
        return await process.stdout.read(_STREAMED_CHUNK)


async def _finish(
    process: asyncssh.SSHClientProcess[bytes],
    feeding: asyncio.Future[None],
    reading: Iterable[Coroutine[Any, Any, None]],
) -> int:
    """Return the exit code, once both outputs were read to their ends."""
    draining = [asyncio.ensure_future(each) for each in reading]
    try:
        with translate_errors():
            await asyncio.gather(*draining)
            await process.channel.wait_closed()
    finally:
        for task in (feeding, *draining):
            task.cancel()
        await asyncio.gather(feeding, *draining, return_exceptions=True)
    return exit_code_of(process)


async def feed_input(stdin: asyncssh.SSHWriter[bytes], data: bytes, parts: AsyncIterator[bytes] | None = None) -> None:
    """Write the whole input of a command, and its end. Return if the command does not read it any more."""
    async with closing_source(parts or no_parts()) as source:
        await _write(stdin, data)
        async for part in source:
            if stdin.is_closing():
                return
            await _write(stdin, part)
    with suppress(OSError, asyncssh.Error):
        stdin.write_eof()


async def no_parts() -> AsyncIterator[bytes]:
    return
    yield b""


async def _write(stdin: asyncssh.SSHWriter[bytes], data: bytes) -> None:
    # A command may exit without reading its input.
    with suppress(OSError, asyncssh.Error):
        for start in range(0, len(data), _CHUNK):
            stdin.write(data[start : start + _CHUNK])
            await stdin.drain()


async def _drain(stream: asyncssh.SSHReader[bytes], buffer: BoundedBuffer) -> None:
    while block := await stream.read(_CHUNK):
        buffer.append(block)


def exit_code_of(process: asyncssh.SSHClientProcess[bytes]) -> int:
    """Return the exit code of a process that has ended. Raise GuestUnreachable if the connection ended without one."""
    killed = process.exit_signal
    if killed is not None:
        number = getattr(signal, f"SIG{killed[0]}", signal.SIGKILL)
        return 128 + int(number)
    if process.exit_status is None:
        raise GuestUnreachable(UNREACHABLE)
    return process.exit_status
