"""The hold of a fake machine: none, unless a test has put a program there that leads to one."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

from vmbackend.errors import GuestUnreachable
from vmbackend.guest.hold import HoldUnsupported
from vmbackend.guest.hold.transport import OpenTransport, Transport

# Next to a machine's disk: a program whose standard streams are those of the machine's hold.
HOLD_FILE = "hold"


class PipeTransport:
    """`guest attach` as a child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        if process.stdin is None or process.stdout is None:
            raise ValueError("The process has no pipes.")
        self._stdin, self._stdout = process.stdin, process.stdout

    async def read(self, limit: int) -> bytes:
        return await self._stdout.read(limit)

    def write(self, data: bytes) -> None:
        if self._stdin.is_closing():
            raise GuestUnreachable("closed")
        self._stdin.write(data)

    async def drain(self) -> None:
        try:
            await self._stdin.drain()
        except OSError as error:
            raise GuestUnreachable("lost") from error

    def spend_time(self, seconds: float) -> float:
        return 0.0

    async def explain_end(self) -> Exception:
        return GuestUnreachable("ended")

    async def close(self) -> None:
        self._stdin.close()
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()
        with suppress(OSError):
            # All calls wait for one future, which the cancellation of one must not cancel.
            await asyncio.shield(self._stdin.wait_closed())


def hold_opener(disk: Path) -> OpenTransport:
    """Return how the hold of the machine with this disk is reached."""
    program = disk.with_name(HOLD_FILE)
    return partial(_open_program, program) if program.exists() else no_hold


async def no_hold() -> Transport:
    """Raise HoldUnsupported."""
    raise HoldUnsupported("Machines of the fake driver have no terminals and no tasks.")


async def _open_program(program: Path) -> Transport:
    pipe = asyncio.subprocess.PIPE
    return PipeTransport(await asyncio.create_subprocess_exec(program, stdin=pipe, stdout=pipe))
