"""A command whose output is an event stream.

A task of its own runs the command and has at most one part of the output on its way to the client; the guest waits
while the client does not take it. So the command's place and the guest's connection are given back at its deadline,
also if the client does not read and the response waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from common.connections import release_thread
from common.errors import DomainError, Unauthorized
from common.responses import as_domain_error, error_body
from common.sse.frames import HEARTBEAT, HEARTBEAT_SECONDS, plain_frame
from common.sse.watched_grants import watched_grant
from common.stream_clients import EVENTS, client_open
from vmbackend.guest.deadlines import PLACE_SECONDS
from vmbackend.guest.output import CommandExit, OutputPart, StreamName
from workspaces import last_used
from workspaces.commands.capacity import command_place
from workspaces.commands.input import CommandInput, open_input
from workspaces.commands.output import Encoding, OutputEncoder
from workspaces.commands.requested import Command
from workspaces.grants import revoked_grants
from workspaces.guests import take_parts

# After a part of fewer bytes the next one is asked for later, so that it has more bytes and events are fewer.
SMALL_BYTES = 4096
PAUSE_SECONDS = 0.01

Item = OutputPart | CommandExit | DomainError


class CommandStream:
    """One command and the stream of its output. Belongs to one event loop."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._room = asyncio.Semaphore(1)  # for output that the client has not taken; an error at the end needs none
        self._revoked = ""
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> AsyncIterator[bytes]:
        """Return the response's body once the command runs. Raise RateLimited and the errors of `take_parts`.

        A caller that is cancelled ends the command.
        """
        self._task = asyncio.ensure_future(self._serve())
        _running.add(self._task)  # the loop holds tasks weakly
        self._task.add_done_callback(_running.discard)
        try:
            first = await self._items.get()
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if isinstance(first, DomainError):
            raise first
        return self._body(first, self._task)

    async def _serve(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            if not self._revoked:
                raise
            self._items.put_nowait(Unauthorized(f"The stream ends: {self._revoked}."))
        except Exception as exc:
            self._items.put_nowait(as_domain_error(exc))

    async def _run(self) -> None:
        command = self._command
        with command_place(command.account_id), self._input() as stdin:
            async with (
                last_used.in_use_async(command.address.machine_id, command.seconds + PLACE_SECONDS),
                watched_grant(command.grant, revoked_grants, self._end),
            ):
                run = partial(command.stream, stdin_parts=stdin)
                await take_parts(command.address, run, self._put, command.seconds)

    def _input(self) -> AbstractContextManager[CommandInput | None]:
        """Return the object that takes parts of the command's standard input, if it has any."""
        command = self._command
        return open_input(command.address.machine_id, command.stdin_key) if command.stdin_key else nullcontext()

    def _end(self, reason: str) -> None:
        self._revoked = reason
        if self._task is not None:
            self._task.cancel()

    async def _put(self, item: Item) -> None:
        await self._room.acquire()
        self._items.put_nowait(item)
        if isinstance(item, OutputPart) and 0 < len(item.data) < SMALL_BYTES:
            await asyncio.sleep(PAUSE_SECONDS)

    async def _body(self, item: Item, task: asyncio.Task[None]) -> AsyncIterator[bytes]:
        release_thread()  # the first place that runs after the last middleware
        events = OutputEvents(self._command.encoding)
        try:
            with client_open(EVENTS):
                while True:
                    for text in events.texts_of(item):
                        yield text
                    if not isinstance(item, OutputPart):
                        return
                    self._room.release()
                    while (found := await self._next()) is None:
                        yield HEARTBEAT
                    item = found
        finally:
            task.cancel()

    async def _next(self) -> Item | None:
        """Return the next item, or None if none comes for HEARTBEAT_SECONDS."""
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                return await self._items.get()
        except TimeoutError:
            return None


class OutputEvents:
    """The events of one command."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoders = {"stdout": OutputEncoder(encoding), "stderr": OutputEncoder(encoding)}
        self._is_lossy = False

    def texts_of(self, item: Item) -> list[bytes]:
        """Return the texts that the client is sent for an item."""
        if isinstance(item, OutputPart):
            return self._output(item.stream, item.data)
        rest = [text for name in ("stdout", "stderr") for text in self._output(name, b"", final=True)]
        if isinstance(item, DomainError):
            return [*rest, plain_frame("error", {**error_body(item), "status": item.status})]
        ended = {"exit_code": item.exit_code, "duration_ms": item.duration_ms, "timed_out": item.timed_out}
        return [*rest, plain_frame("exit", {**ended, "lossy": self._is_lossy})]

    def _output(self, name: StreamName, data: bytes, *, final: bool = False) -> list[bytes]:
        output = self._encoders[name].encode(data, final=final)
        self._is_lossy = self._is_lossy or output.lossy
        return [plain_frame(name, {"data": output.text, "lossy": output.lossy})] if output.text else []


_running: set[asyncio.Task[None]] = set()
