"""Logs of a workspace: `boot` (the console), `cmd` (the main program) and those of its workloads.

Written by `make client`.
"""

from __future__ import annotations

import builtins

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.logs import LogEntry, LogFile, LogFileResponse


class AsyncLogRoutes(AsyncGroup):
    """Logs of a workspace: `boot` (the console), `cmd` (the main program) and those of its workloads."""

    async def list(
        self, workspace: str, *, source: str | None = None, tail_lines: int | None = None
    ) -> builtins.list[LogEntry]:
        """Return the last lines of `boot` (the console), `cmd` (the main program) or a workload, by its name."""
        answer: builtins.list[LogEntry] = await self._call(
            "GET",
            f"/workspace/{quoted(workspace)}/logs",
            query={"source": source, "tail_lines": tail_lines},
            part="logs",
        )
        return answer

    async def clear(self, workspace: str) -> None:
        """Empty all logs, on the host and in the workspace, which must be running. Open streams get an event."""
        await self._delete(f"/workspace/{quoted(workspace)}/logs")

    async def files(self, workspace: str) -> builtins.list[LogFile]:
        """List the log files, older ones (`.1` to `.3`) included."""
        answer: builtins.list[LogFile] = await self._call(
            "GET", f"/workspace/{quoted(workspace)}/logs/list", part="files"
        )
        return answer

    async def file(self, workspace: str, name: str) -> LogFileResponse:
        """Return one log file: its last MiB in JSON, or with `Accept: text/plain` all of it as it is, streamed,
        with ranges.
        """
        answer: LogFileResponse = await self._call("GET", f"/workspace/{quoted(workspace)}/logs/file/{quoted(name)}")
        return answer
