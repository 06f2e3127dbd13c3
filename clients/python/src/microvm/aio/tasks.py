"""Tasks inside a workspace: commands that go on without their clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Unpack

import httpx

from microvm.addresses import quoted
from microvm.aio.routes.runtime_tasks import AsyncRuntimeTaskRoutes
from microvm.aio.streams import SILENCE, events_of
from microvm.errors import ConnectionFailed
from microvm.events import EventParser, StreamPlace
from microvm.retries import Sending
from microvm.task_events import TaskEvent, TaskExit, task_event
from microvm.transfers import RAW
from microvm.types.runtime_tasks import FollowedTaskRequest


class AsyncTasks(AsyncRuntimeTaskRoutes):
    """Tasks in one workspace, with a token of its runtime."""

    async def start(self, **body: Unpack[FollowedTaskRequest]) -> str:
        """Start a task and return its id, while it runs. It is not sent again once it may run."""
        headers = {"Accept": "text/event-stream"}
        parser = EventParser(StreamPlace())
        try:
            async with self._transport.opened(
                Sending("POST", "/exec/stream", body=body, headers=headers, timeout=SILENCE)
            ) as response:
                async for part in response.aiter_bytes():
                    for event in parser.events_in(part):
                        return str(event.data["task_id"])
        except httpx.TransportError as error:
            raise ConnectionFailed(f"The connection was lost while the task was started: {error}") from error
        raise ConnectionFailed("The service ended the connection while the task was started.")

    async def follow(self, task: str, *, offset: int = 0) -> AsyncGenerator[TaskEvent, None]:
        """Yield the output of a task from an offset on: `TaskOutput` each time, `TaskGap` if bytes are gone, and
        `TaskExit` at last. After a lost connection it goes on where it was.
        """
        place = StreamPlace(last_id=f"{task}-{offset}" if offset else "")
        async for event in events_of(self._transport, "/exec/stream", {"task_id": task}, place):
            found = task_event(event)
            if found is not None:
                yield found
            if isinstance(found, TaskExit):
                return

    async def give_input(self, task: str, data: bytes, *, ends: bool = False) -> None:
        """Give a task input, at most 1 MiB: all of it or, if this raises, nothing. `ends`: nothing follows it."""

        async def content() -> AsyncIterator[bytes]:
            yield data

        headers = {"Content-Type": RAW, "Content-Length": str(len(data))}
        query = {"eof": "true" if ends else None}
        sending = Sending("POST", f"/exec/{quoted(task)}/input", query=query, headers=headers)
        async with self._transport.opened(sending, content) as response:
            await response.aread()
