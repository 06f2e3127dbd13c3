"""The event stream of a task: each byte once, or how many are gone. A stream without `exit` was cut off.

Neither its client's end nor its own ends the task. The guest keeps what was not received, so that a client which comes
back within a minute goes on where it was.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from common.connections import release_thread
from common.sse.frames import HEARTBEAT, HEARTBEAT_SECONDS, one_line
from common.stream_clients import EVENTS, client_open
from common.watched_bodies import granted_chunks
from vmbackend.guest.hold.task_output import TaskOutput
from vmbackend.guest.hold.task_pieces import TaskPiece
from vmbackend.guest.hold.task_record import TaskRecord
from vmbackend.guest.hold.tasks import HeldTasks
from vmbackend.guest.session import GuestSession
from workspaces.commands.capacity import command_place
from workspaces.data_plane.guest import OpenGuest
from workspaces.runtime.tasks.errors import task_errors
from workspaces.runtime.tasks.shown import exit_fields

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskBegun:
    """The beginning of a stream: the task is there."""

    task: int


Item = TaskBegun | TaskPiece | TaskRecord
# Opens the output of a task, which it may start.
OpenOutput = Callable[[HeldTasks], Awaitable[tuple[int, TaskOutput]]]
NAMES = {1: "stdout", 2: "stderr"}


class TaskEvents:
    """The events of one stream, in their order. `offset`: the client has what is before it."""

    def __init__(self, offset: int) -> None:
        self._task = 0
        self._at = offset

    def events_of(self, item: Item) -> bytes:
        """Return the text of the events for an item."""
        if isinstance(item, TaskBegun):
            self._task = item.task
            return self._event("task_id", {"task_id": str(item.task)})
        if isinstance(item, TaskRecord):
            return self._gap(item.log_end) + self._event("exit", exit_fields(item))
        gap = self._gap(item.offset)
        self._at = item.end
        return gap + self._event(NAMES[item.output], {"data": b64encode(item.data).decode()})

    def _gap(self, offset: int) -> bytes:
        gone, self._at = offset - self._at, offset
        return self._event("gap", {"bytes": gone}) if gone > 0 else b""

    def _event(self, name: str, fields: dict[str, Any]) -> bytes:
        return f"event: {name}\nid: {self._task}-{self._at}\ndata: {one_line(fields)}\n\n".encode()


async def follow_items(session: GuestSession, open_output: OpenOutput) -> AsyncIterator[Item]:
    """Yield the beginning of a task's output, the output, and the task's record at its end. Raise the errors of
    `task_errors`.
    """
    with task_errors():
        tasks = (await session.open_held()).tasks
        task, output = await open_output(tasks)
        try:
            yield TaskBegun(task)
            while not isinstance(item := await output.read(), TaskRecord):
                yield item
            yield item
        finally:
            tasks.close_output(output)


async def open_stream(guest: OpenGuest, open_output: OpenOutput, offset: int) -> AsyncIterator[bytes]:
    """Return the body of a stream whose task is known to be there. `offset`: where the client wants to begin.

    Raise RateLimited and the errors of `OpenGuest.stream`.
    """
    body = _body(guest, open_output, offset)
    first = await anext(body)
    return granted_chunks(_joined(first, body), guest.grant)


async def _joined(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    release_thread()  # the first place that runs after the last middleware
    async with aclosing(rest):
        yield first
        async for text in rest:
            yield text


async def _body(guest: OpenGuest, open_output: OpenOutput, offset: int) -> AsyncGenerator[bytes, None]:
    events = TaskEvents(offset)
    with command_place(guest.account_id), client_open(EVENTS):
        async with aclosing(guest.stream(lambda session: follow_items(session, open_output))) as items:
            async for item in with_heartbeats(items):
                yield HEARTBEAT if item is None else events.events_of(item)


async def with_heartbeats(items: AsyncGenerator[T, None]) -> AsyncIterator[T | None]:
    """Yield the items, and None for each HEARTBEAT_SECONDS without one."""
    while True:
        pulling: asyncio.Future[T | None] = asyncio.ensure_future(anext(items, None))
        try:
            while not (await asyncio.wait({pulling}, timeout=HEARTBEAT_SECONDS))[0]:
                yield None
        finally:
            if not pulling.done():
                pulling.cancel()
                await asyncio.wait({pulling})
        if (item := pulling.result()) is None:
            return
        yield item
