"""Tools for tasks: commands that go on after the call, and keep what they have written."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from microvm.aio.client import AsyncMicrovm
from microvm.aio.tasks import AsyncTasks
from microvm.mcp_server.bounds import MOST_ROWS, MOST_TEXT, bounded_output, bounded_text
from microvm.mcp_server.results import Done
from microvm.mcp_server.tool_kinds import DESTROY, READ, RUN, ToolSet
from microvm.mcp_server.workspace_tools import Name
from microvm.task_events import TaskEvent, TaskExit, TaskGap, TaskOutput
from microvm.types.runtime_tasks import TaskShort

MOST_COMMAND = 500  # characters of a command in a list
TaskId = Annotated[str, Field(description="Of the task: digits.", pattern="^[0-9]{1,18}$")]


class TaskSummary(BaseModel):
    """One task."""

    task: str
    status: str = Field(description="pending, running, exited or failed.")
    exit_code: int | None
    command: str
    error: str | None = Field(description="Why it failed.")

    @classmethod
    def of(cls, row: TaskShort) -> TaskSummary:
        """Return the summary of a task object."""
        command, _ = bounded_text(" ".join(row["command"]), MOST_COMMAND)
        return cls(
            task=row["id"], status=row["status"], exit_code=row["exit_code"], command=command, error=row.get("error")
        )


class TaskListing(BaseModel):
    """Tasks, newest first."""

    tasks: list[TaskSummary]
    truncated: bool


class TaskPart(BaseModel):
    """The next part of what a task has written."""

    stdout: str
    stdout_encoding: Literal["utf-8", "base64"]
    stderr: str
    stderr_encoding: Literal["utf-8", "base64"]
    next_offset: int = Field(description="Give it to the next call, to read on.")
    missing_bytes: int = Field(description="Bytes that the task's log has forgotten.")
    ended: bool
    exit_code: int | None = Field(description="Once it has ended; -1 if it has none.")
    error: str | None = Field(description="Why it failed.")


def add_task_tools(tools: ToolSet, client: AsyncMicrovm) -> None:
    found = TaskTools(client)
    tools.add(READ, found.list_tasks, found.read_task)
    tools.add(RUN, found.start_task, found.send_task_input)
    tools.add(DESTROY, found.stop_task)


class TaskTools:
    """Each docstring is what a model reads of the tool."""

    def __init__(self, client: AsyncMicrovm) -> None:
        self._client = client

    async def start_task(
        self,
        *,
        workspace: Name,
        command: Annotated[str, Field(description="Run by sh -c.", min_length=1, max_length=60_000)],
        working_dir: Annotated[str | None, Field(description="Absolute path.")] = None,
        env: dict[str, str] | None = None,
        user: Annotated[str | None, Field(description="As whom it runs; else as the image says.")] = None,
        timeout_seconds: Annotated[float | None, Field(ge=1, le=604_800, allow_inf_nan=False)] = None,
    ) -> TaskSummary:
        """Start a shell command that goes on after this call, as a build or a test run, and return its number.

        read_task has its output and its end, from any later call; it survives lost connections and the workspace's
        sleep, but not its restart. For what is to be started with the workspace, use add_workload.
        """
        given = {"working_dir": working_dir, "env": env, "user": user, "timeout_seconds": timeout_seconds}
        body: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        tasks = await self._tasks(workspace, enable=True)
        task = await tasks.start(cmd=command, exec_mode="shell", ttl_seconds=86_400, **body)
        return TaskSummary.of(await tasks.get(task))

    async def read_task(
        self,
        workspace: Name,
        task: TaskId,
        offset: Annotated[int, Field(ge=0, description="0, or `next_offset` of the call before.")] = 0,
        wait_seconds: Annotated[
            float, Field(ge=0, le=60, allow_inf_nan=False, description="How long to wait for more, or for the end.")
        ] = 5,
    ) -> TaskPart:
        """Read what a task has written from an offset on, 30,000 bytes at most, and whether it has ended."""
        part = _Part(offset)
        tasks = await self._tasks(workspace)
        await part.read(tasks, task, wait_seconds)
        return part.result()

    async def list_tasks(self, workspace: Name) -> TaskListing:
        """List the tasks of a workspace, the newest first."""
        rows = await (await self._tasks(workspace)).list()
        found = [TaskSummary.of(row) for row in rows[:MOST_ROWS]]
        return TaskListing(tasks=found, truncated=len(rows) > MOST_ROWS)

    async def send_task_input(
        self,
        workspace: Name,
        task: TaskId,
        text: Annotated[str, Field(max_length=1_000_000, description="With its line ends.")],
        *,
        ends: Annotated[bool, Field(description="The input ends after it.")] = False,
    ) -> Done:
        """Give a task input: all of it, or nothing if this fails."""
        await (await self._tasks(workspace)).give_input(task, text.encode(), ends=ends)
        return Done(message="The task has its input.")

    async def stop_task(self, workspace: Name, task: TaskId) -> Done:
        """Kill a task, with all that it has started, and forget it and its output."""
        await (await self._tasks(workspace)).remove(task)
        return Done(message=f"Task {task} is gone.")

    async def _tasks(self, workspace: str, *, enable: bool = False) -> AsyncTasks:
        return (await self._client.runtime(workspace, enable=enable)).tasks


class _Part:
    """A part of a task's output, which is being read."""

    def __init__(self, offset: int) -> None:
        self._outputs = {"stdout": b"", "stderr": b""}
        self._offset = offset
        self._missing = 0
        self._end: TaskExit | None = None

    async def read(self, tasks: AsyncTasks, task: str, seconds: float) -> None:
        """Take events until there is enough, the task has ended, or the time is over; at least what is there."""
        until = time.monotonic() + seconds
        async with aclosing(tasks.follow(task, offset=self._offset)) as events:
            while self._end is None and sum(map(len, self._outputs.values())) < MOST_TEXT:
                try:
                    async with asyncio.timeout(max(until - time.monotonic(), 0.5)):
                        event = await anext(events, None)
                except TimeoutError:
                    return
                if event is None:
                    return
                self._take(event)

    def _take(self, event: TaskEvent) -> None:
        if isinstance(event, TaskOutput):
            self._outputs[event.stream] += event.data
            self._offset = event.offset
        elif isinstance(event, TaskGap):
            self._missing += event.bytes
        else:
            self._end = event

    def result(self) -> TaskPart:
        """Return what was read."""
        stdout, out_encoding, _ = bounded_output(self._outputs["stdout"], is_cut=self._end is None)
        stderr, err_encoding, _ = bounded_output(self._outputs["stderr"], is_cut=self._end is None)
        return TaskPart(
            stdout=stdout,
            stdout_encoding=out_encoding,
            stderr=stderr,
            stderr_encoding=err_encoding,
            next_offset=self._offset,
            missing_bytes=self._missing,
            ended=self._end is not None,
            exit_code=None if self._end is None else self._end.exit_code,
            error=None if self._end is None else self._end.error or None,
        )
