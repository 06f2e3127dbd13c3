"""Confined processes whose input and output a coroutine passes on."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from vmbackend.errors import BackendUnavailable
from vmbackend.tool_confinement import ToolConfinement, confined_command

from .ssh import CHUNK

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LC_ALL": "C.UTF-8"}  # noqa: S108 - inside
_KEPT_ERRORS = 2000
_END_SECONDS = 5.0


class ConfinedProcess:
    """A confined process that runs. Belongs to one event loop, and ends with its thread."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._said = asyncio.create_task(self._read_errors())

    async def read(self) -> bytes:
        """Return bytes of its output; none at its end."""
        assert self._process.stdout is not None  # noqa: S101 - PIPE was requested
        return await self._process.stdout.read(CHUNK)

    async def write(self, data: bytes) -> bool:
        """Return when it has room for more; False if it reads nothing any more."""
        assert self._process.stdin is not None  # noqa: S101 - PIPE was requested
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except ConnectionError:
            return False
        return True

    def end_input(self) -> None:
        """Let it see the end of its input."""
        assert self._process.stdin is not None  # noqa: S101 - PIPE was requested
        self._process.stdin.close()

    async def wait(self) -> int:
        """Return its exit code, once nothing of it is left; negative: the signal that ended it."""
        code = await self._process.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._said), _END_SECONDS)
        return code

    async def errors(self) -> str:
        """Return the end of what it said of errors, which the other side may have chosen."""
        return repr((await self._said).decode(errors="replace"))

    async def end(self) -> None:
        """Kill it with all that it started, unless it has ended."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                # Its group: bwrap's inner process does not yet die with the outer one while they are being set up.
                os.killpg(self._process.pid, signal.SIGKILL)
        # It counts as ended once its output is read to the end, too.
        ending = [asyncio.create_task(self.wait()), asyncio.create_task(self._drop_output())]
        await asyncio.wait(ending, timeout=_END_SECONDS)
        for task in (*ending, self._said):
            task.cancel()
        process: Any = self._process
        process._transport.close()
        with suppress(ConnectionError, TimeoutError):  # as it was killed before it had read everything
            await asyncio.wait_for(process.stdin.wait_closed(), _END_SECONDS)

    async def _drop_output(self) -> None:
        while await self.read():
            pass

    async def _read_errors(self) -> bytes:
        """Return the end of its error output, and read all of it, so that it never waits for that."""
        assert self._process.stderr is not None  # noqa: S101 - PIPE was requested
        kept = b""
        while piece := await self._process.stderr.read(4096):
            kept = (kept + piece)[-_KEPT_ERRORS:]
        return kept


@asynccontextmanager
async def confined_process(
    argv: Sequence[str], confinement: ToolConfinement, *, max_file_bytes: int | None = None
) -> AsyncIterator[ConfinedProcess]:
    """Run a confined process within the block; after it nothing of it runs. Raise BackendUnavailable."""
    with confined_command(argv, confinement, max_file_bytes=max_file_bytes) as (command, descriptors):
        try:
            started = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=_ENVIRONMENT,
                pass_fds=descriptors,
                start_new_session=True,
                umask=0o077,
                limit=CHUNK,
            )
        except OSError as error:
            raise BackendUnavailable(f"The host cannot run {argv[0]}; run the doctor command.") from error
    process = ConfinedProcess(started)
    try:
        yield process
    finally:
        await asyncio.shield(process.end())
