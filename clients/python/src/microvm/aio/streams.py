"""Event streams that outlive their connection: logs and statistics."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import httpx

from microvm.addresses import quoted
from microvm.aio.routes.logs import AsyncLogRoutes
from microvm.aio.routes.metrics import AsyncMetricRoutes
from microvm.aio.routes.workloads import AsyncWorkloadRoutes
from microvm.aio.transport import AsyncTransport
from microvm.aio.waiting import sleep
from microvm.errors import NotFound
from microvm.events import Event, EventParser, StreamPlace
from microvm.retries import Sending
from microvm.types.logs import LogEntry
from microvm.types.metrics import Stats
from microvm.workload_events import NamedWorkloadStats, WorkloadOutput

# The service sends a comment every 15 seconds: a connection without one for that long is lost.
SILENCE = 45.0


class AsyncMetrics(AsyncMetricRoutes):
    """The present state of a workspace's machine."""

    async def follow(self, workspace: str) -> AsyncGenerator[Stats, None]:
        """Statistics once a second, until the caller ends it or the workspace is deleted. Missed ones are left out."""
        async for event in events_of(self._transport, f"/workspace/{quoted(workspace)}/stats/stream", {}):
            if event.kind == "message":
                stats: Stats = event.data
                yield stats


class AsyncLogs(AsyncLogRoutes):
    """Logs of a workspace: `boot` (the console), `cmd` (the main program) and those of its workloads."""

    async def follow(
        self,
        workspace: str,
        source: str = "boot",
        *,
        tail_lines: int = 100,
        on_gap: Callable[[], None] | None = None,
        on_clear: Callable[[], None] | None = None,
    ) -> AsyncGenerator[LogEntry, None]:
        """The last lines, then each new one, until the caller ends it or the workspace is deleted.

        After a lost connection it goes on where it was. `on_gap` is called where lines are missing, `on_clear` where
        the log was emptied.
        """
        path = f"/workspace/{quoted(workspace)}/logs/stream/{quoted(source)}"
        async for event in events_of(self._transport, path, {"tail_lines": tail_lines}):
            if event.kind == "message" and "line" in event.data:
                entry: LogEntry = event.data
                yield entry
            elif event.kind == "gap" and on_gap is not None:
                on_gap()
            elif "cleared" in event.data and on_clear is not None:
                on_clear()


class AsyncWorkloads(AsyncWorkloadRoutes):
    """Supervised programs of a workspace, read and changed while it runs."""

    async def follow_logs(
        self, workspace: str, workload: str, *, tail_lines: int = 100
    ) -> AsyncGenerator[WorkloadOutput, None]:
        """The last lines, then each new one, until the caller ends it or the workspace is deleted."""
        path = f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}/logs/stream"
        async for event in events_of(self._transport, path, {"tail_lines": tail_lines}):
            if event.kind == "message" and "data" in event.data:
                line: WorkloadOutput = event.data
                yield line

    async def follow_stats(self, workspace: str) -> AsyncGenerator[NamedWorkloadStats, None]:
        """Yield the use of each workload, once a second, until the caller stops or the workspace is deleted."""
        async for event in events_of(self._transport, f"/workspace/{quoted(workspace)}/workloads/stats/stream", {}):
            if event.kind == "message":
                stats: NamedWorkloadStats = event.data
                yield stats


async def events_of(
    transport: AsyncTransport, path: str, query: Mapping[str, Any], place: StreamPlace | None = None
) -> AsyncGenerator[Event, None]:
    """The events of a stream, over as many connections as it takes; from `place` on.

    Ends where what was streamed is deleted. Raises ApiError where the service refuses, ConnectionFailed where no
    connection comes about.
    """
    place = place or StreamPlace()
    is_begun = False
    while True:
        parser = EventParser(place)
        sending = Sending("GET", path, query=query, headers=place.headers(), timeout=SILENCE)
        try:
            async with transport.opened(sending) as response:
                is_begun = True
                async for part in response.aiter_bytes():
                    for event in parser.events_in(part):
                        yield event
        except httpx.TransportError:
            pass  # the next connection goes on after the last event
        except NotFound:
            if is_begun:
                return
            raise
        await sleep(place.wait)
