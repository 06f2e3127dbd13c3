"""Tasks in one workspace, with a token of its runtime.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import LONG, AsyncGroup
from microvm.types.runtime_tasks import RunTaskRequest, TaskResponse, TaskShort


class AsyncRuntimeTaskRoutes(AsyncGroup):
    """Tasks in one workspace, with a token of its runtime."""

    async def list(self) -> builtins.list[TaskShort]:
        """Return the tasks of the workspace, the newest first, at most 1,000."""
        answer: builtins.list[TaskShort] = await self._call("GET", "/exec", part="tasks")
        return answer

    async def run(self, **body: Unpack[RunTaskRequest]) -> TaskResponse:
        """Start a task and return it when it has ended. At the timeout all of it is killed (code 124)."""
        answer: TaskResponse = await self._call("POST", "/exec", body=body, timeout=LONG)
        return answer

    async def remove_all(self) -> int:
        """Kill and forget all tasks of the workspace."""
        answer: int = await self._call("DELETE", "/exec", part="deleted", again=True)
        return answer

    async def get(self, task: str) -> TaskResponse:
        """Return a task as it is now, with the end of its outputs."""
        answer: TaskResponse = await self._call("GET", f"/exec/{quoted(task)}")
        return answer

    async def remove(self, task: str) -> TaskShort:
        """Kill a task, with all that it has started, and forget it."""
        answer: TaskShort = await self._call("DELETE", f"/exec/{quoted(task)}", part="task")
        return answer
