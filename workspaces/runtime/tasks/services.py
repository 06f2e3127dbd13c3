"""Tasks of a guest, each call with its session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings

from common.errors import DomainError
from vmbackend.errors import GuestUnreachable as GuestLost
from vmbackend.guest.hold.command import CommandStart
from vmbackend.guest.hold.task_output import TaskOutput
from vmbackend.guest.hold.task_pieces import TaskPiece
from vmbackend.guest.hold.task_record import TaskRecord
from vmbackend.guest.hold.tasks import HeldTasks, TaskLimits, TaskOptions
from vmbackend.guest.session import GuestSession
from workspaces.errors import GuestUnreachable
from workspaces.runtime.tasks.errors import task_errors

T = TypeVar("T")
# Bytes that are shown of each output, and that wait for their reader.
SHOWN_BYTES = 1 << 20
WINDOW = 256 * 1024
LIST_LIMIT = 1000
REMOVED_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class ShownTask:
    """A task with the end of its outputs. `truncated`: it has written more."""

    record: TaskRecord
    stdout: str
    stderr: str
    truncated: bool


class Ends:
    """The last bytes of both outputs."""

    def __init__(self, *, is_cut: bool = False) -> None:
        self._data = {1: bytearray(), 2: bytearray()}
        self._is_cut = is_cut
        self._at = 0

    def add(self, piece: TaskPiece) -> None:
        data = self._data[piece.output]
        data += piece.data
        self._is_cut = self._is_cut or piece.offset > self._at or len(data) > SHOWN_BYTES
        self._at = piece.end
        # Not with each piece: the rest would be moved as often.
        if len(data) > 2 * SHOWN_BYTES:
            del data[:-SHOWN_BYTES]

    def show(self, record: TaskRecord) -> ShownTask:
        out, err = (bytes(self._data[output][-SHOWN_BYTES:]).decode("utf-8", "replace") for output in (1, 2))
        return ShownTask(record, out, err, self._is_cut or record.log_end > self._at)


def start_of(data: dict[str, Any]) -> CommandStart:
    """Return what a checked request starts."""
    return CommandStart(data["words"], data["env"], data["working_dir"], data["user"])


def options_of(data: dict[str, Any]) -> TaskOptions:
    """Return the options of a checked request, within the limits of the settings."""
    env = settings.ENV
    limits = TaskLimits(
        env.runtime_log_bytes, env.runtime_logs_bytes, env.runtime_tasks_max, env.runtime_ended_tasks_max
    )
    return TaskOptions(data["timeout_seconds"], data["ttl_seconds"], data["keep_logs"], limits)


def retained_bytes() -> int:
    """Return how many bytes that were read the guest still keeps for a client that has not received them yet."""
    kept: int = settings.ENV.runtime_log_bytes // 4
    return kept


async def with_tasks(session: GuestSession, work: Callable[[HeldTasks], Awaitable[T]]) -> T:
    """Return what `work` returns for the tasks of a guest. Raise the errors of `task_errors`."""
    with task_errors():
        return await work((await session.open_held()).tasks)


async def run_task(tasks: HeldTasks, start: CommandStart, options: TaskOptions) -> ShownTask:
    """Start a task and return it when it has ended. It goes on if this is cancelled or the guest is lost."""
    record, output = await tasks.start_followed(start, options, window=WINDOW)
    try:
        return await _read_to_end(output, Ends())
    except GuestLost as exc:
        raise GuestUnreachable(exc.message, details={"task_id": str(record.id)}) from exc
    finally:
        tasks.close_output(output)


async def show_task(tasks: HeldTasks, task: int) -> ShownTask:
    """Return a task as it is now, with the end of its outputs."""
    output, is_cut = await tasks.follow_last(task, SHOWN_BYTES, WINDOW)
    try:
        return await _read_to_end(output, Ends(is_cut=is_cut))
    finally:
        tasks.close_output(output)


async def remove_tasks(tasks: HeldTasks) -> int:
    """Kill and forget all tasks that there are; return how many."""
    found = [record.id for record in await tasks.list()]
    for first in range(0, len(found), REMOVED_AT_ONCE):
        await asyncio.gather(*(_remove(tasks, task) for task in found[first : first + REMOVED_AT_ONCE]))
    return len(found)


async def _remove(tasks: HeldTasks, task: int) -> None:
    try:
        with task_errors():
            await tasks.remove(task)
    except DomainError as exc:
        if exc.status != 404:  # another request has removed it
            raise


async def list_tasks(tasks: HeldTasks) -> Sequence[TaskRecord]:
    """Return the newest tasks."""
    return (await tasks.list())[:LIST_LIMIT]


async def _read_to_end(output: TaskOutput, ends: Ends) -> ShownTask:
    while not isinstance(got := await output.read(), TaskRecord):
        ends.add(got)
    return ends.show(got)
