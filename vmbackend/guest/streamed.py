"""Running one command of the kit's helper with its output as it comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from vmbackend.errors import GuestKitOutdated

from . import commands
from .commands import START_FAILURE_PREFIX, TIMED_OUT, KitPaths, RemoteCommand
from .communicate import exit_code_of, feed_input
from .connection import Channel, CommandConnections
from .output import CommandExit, OutputPart, StreamOptions
from .output_reader import OutputReader
from .running import DEADLINE_SLACK
from .translate import translate_errors

# How long a command may write nothing before it counts as started.
START_SECONDS = 2.0
# Bytes of standard error that may be the helper's own message.
MESSAGE_BYTES = 4096


async def stream_remote(
    connections: CommandConnections, kit: KitPaths, command: Sequence[str] | str, options: StreamOptions
) -> AsyncGenerator[OutputPart | CommandExit, None]:
    """Do what `GuestSession.execute_streamed` does."""
    timeout = options.get("timeout", 30.0)
    for grace in (options.get("grace", 0.0), 0.0):
        run = _StreamedRun(options.get("stdin", b""), options.get("stdin_parts"), timeout)
        remote = commands.build_command(
            kit,
            command,
            env=options.get("env"),
            working_dir=options.get("working_dir"),
            user=options.get("user"),
            timeout=timeout,
            grace=grace,
        )
        try:
            async with aclosing(run.parts(connections, remote)) as parts:
                async for part in parts:
                    yield part
            return
        except GuestKitOutdated:  # it is killed at once, as it was before the update
            # Parts of its input are not there a second time.
            if run.is_begun or not grace or options.get("stdin_parts") is not None:
                raise


class _StreamedRun:
    """One attempt to run a command."""

    def __init__(self, stdin: bytes, stdin_parts: AsyncIterator[bytes] | None, timeout: float) -> None:
        self._stdin = stdin
        self._stdin_parts = stdin_parts
        self._timeout = timeout
        self._said = b""  # the first bytes of standard error
        self._held: list[OutputPart] = []
        self.is_begun = False

    async def parts(
        self, connections: CommandConnections, remote: RemoteCommand
    ) -> AsyncGenerator[OutputPart | CommandExit, None]:
        """Raise GuestKitOutdated, the errors of `start_error`, GuestUnreachable, GuestBusy, GuestOutputNotRead."""
        started = time.monotonic()
        try:
            # An exception in the block closes the connection, which ends the command.
            async with connections.channel(remote.line) as channel:
                started = time.monotonic()
                async with aclosing(self._output(channel, remote.preamble + self._stdin, started)) as output:
                    async for part in output:
                        yield part
                code = exit_code_of(channel.process)
        except TimeoutError:
            code = TIMED_OUT
        self._require_started(code)
        for held in self._held:
            yield held
        elapsed = time.monotonic() - started
        # A command may itself exit with 124; only after the deadline it is the helper's code.
        yield CommandExit(code, int(elapsed * 1000), code == TIMED_OUT and elapsed >= self._timeout)

    async def _output(self, channel: Channel, data: bytes, started: float) -> AsyncGenerator[OutputPart, None]:
        """Raise TimeoutError if the guest does not end the command in time."""
        process, until = channel.process, started + self._timeout + DEADLINE_SLACK
        feeding = asyncio.ensure_future(feed_input(process.stdin, data, self._stdin_parts))
        reader = OutputReader(process.stdout, process.stderr, until)
        try:
            for first in await self._first_parts(reader):
                yield first
            while (part := await self._take_part(reader)) is not None:
                yield part
            async with asyncio.timeout(max(until - time.monotonic(), 1)):
                with translate_errors():
                    await process.channel.wait_closed()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            await reader.close()

    async def _first_parts(self, reader: OutputReader) -> list[OutputPart]:
        """Return the output until it is clear that the command runs, at least an empty part.

        The helper's message that it cannot start a command looks like output until the exit code is there. Output that
        may be this message is held back for a while, and, if the command ends, until its exit code is known.
        """
        parts: list[OutputPart] = []
        until = time.monotonic() + START_SECONDS
        while not parts or (parts[-1].stream == "stderr" and self._may_be_message()):
            try:
                part = await self._take_part(reader, until)
            except TimeoutError:
                break
            if part is None:
                self._held = parts
                return []
            parts.append(part)
        self.is_begun = True
        return parts or [OutputPart("stdout", b"")]

    async def _take_part(self, reader: OutputReader, until: float | None = None) -> OutputPart | None:
        part = await reader.take_part(until)
        if part is not None and part.stream == "stderr":
            self._said += part.data[: MESSAGE_BYTES - len(self._said)]
        return part

    def _may_be_message(self) -> bool:
        size = len(START_FAILURE_PREFIX)
        return len(self._said) < MESSAGE_BYTES and START_FAILURE_PREFIX.startswith(self._said[:size])

    def _require_started(self, code: int) -> None:
        if commands.is_outdated(code, self._said):
            raise GuestKitOutdated(commands.OUTDATED)
        failure = commands.start_failure(code, self._said)
        if failure is not None:
            raise commands.start_error(failure, code)
