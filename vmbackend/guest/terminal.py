"""A guest's terminal over SSH, on a dedicated connection."""

from __future__ import annotations

import asyncio
import signal

from vmbackend.errors import BackendError, GuestUnreachable

from . import commands
from .commands import RemoteCommand
from .connection import Channel, Connection
from .terminal_contract import Terminal, TerminalExit, terminal_size
from .translate import UNREACHABLE, translate_errors

_CHUNK = 32 * 1024
# Sent by the helper when it expects its arguments, and again when the command starts (guest/src/terminal.c).
_NEXT = b"\0"
_MAX_REFUSAL = 4096


async def open_terminal(
    connection: Connection, remote: RemoteCommand, size: tuple[int, int], timeout: float
) -> SSHTerminal:
    """Start the command on `connection`, which the terminal owns from here on; it is closed on any failure.

    `timeout`: of the start, in seconds. Raises GuestCommandInvalid, GuestUnreachable.
    """
    try:
        channel = await connection.open_channel(remote.line, terminal=terminal_size(*size))
        with translate_errors():
            async with asyncio.timeout(timeout):
                rest = await _start(channel, remote.preamble)
    except BaseException:
        await connection.close()
        raise
    return SSHTerminal(connection, channel, rest)


async def _start(channel: Channel, preamble: bytes) -> bytes:
    """Send the arguments; returns the command's first output."""
    before, rest = await _until_next(channel, b"")
    if before is None:
        raise _refused(rest)
    for start in range(0, len(preamble), _CHUNK):
        channel.process.stdin.write(preamble[start : start + _CHUNK])
        await channel.process.stdin.drain()
    before, rest = await _until_next(channel, rest)
    if before is None:
        raise _refused(rest)
    return rest


async def _until_next(channel: Channel, said: bytes) -> tuple[bytes | None, bytes]:
    """The output before the mark (None if the output ended without it), and after it."""
    while _NEXT not in said:
        block = await channel.process.stdout.read(_CHUNK)
        if not block or len(said) > _MAX_REFUSAL:
            return None, said
        said += block
    before, _, rest = said.partition(_NEXT)
    return before, rest


def _refused(said: bytes) -> BackendError:
    reason = commands.start_failure(126, said.replace(b"\r\n", b"\n"))
    if reason is None:
        return GuestUnreachable(UNREACHABLE)
    return commands.start_error(reason)


class SSHTerminal(Terminal):
    """One channel. Unread output is limited by SSH's window, unsent input by asyncssh's write buffer."""

    def __init__(self, connection: Connection, channel: Channel, said: bytes) -> None:
        self._connection = connection
        self._channel = channel
        self._said = said
        self._hung_up = False
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()

    async def read(self) -> bytes:
        async with self._reading:
            said, self._said = self._said, b""
            if said or self._hung_up:
                return said
            with translate_errors():
                return await self._channel.process.stdout.read(_CHUNK)

    async def write(self, data: bytes) -> None:
        stdin = self._channel.process.stdin
        async with self._writing:
            for start in range(0, len(data), _CHUNK):
                if self._ended():
                    return
                try:
                    with translate_errors():
                        stdin.write(data[start : start + _CHUNK])
                        await stdin.drain()
                except GuestUnreachable:
                    # The command may have ended between the check and the write.
                    if not self._ended():
                        raise

    async def resize(self, cols: int, rows: int) -> None:
        if self._ended():
            return
        with translate_errors():
            self._channel.process.change_terminal_size(*terminal_size(cols, rows))

    async def wait(self) -> TerminalExit:
        process = self._channel.process
        with translate_errors():
            await process.channel.wait_closed()
        if process.exit_signal is not None:
            name = f"SIG{process.exit_signal[0]}"
            return TerminalExit(None, name if name in signal.Signals.__members__ else "SIGKILL")
        if process.exit_status is None and not self._hung_up:
            raise GuestUnreachable(UNREACHABLE)
        return TerminalExit(process.exit_status, None)

    async def close(self) -> None:
        self._hung_up = True
        await self._connection.close()

    def _ended(self) -> bool:
        process = self._channel.process
        return self._hung_up or process.exit_status is not None or process.exit_signal is not None
