"""Tasks of a guest: commands that belong to the machine, and outlive connections and processes of the platform."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from vmbackend.errors import GuestUnreachable
from vmbackend.guest.translate import UNREACHABLE

from .command import CommandStart
from .frames import Answer, Fields, GuestGarbage, Request, number, read_nothing
from .link import HoldLink, LinkOpener, Receive
from .task_output import TaskOutput
from .task_record import TaskRecord, read_task, read_tasks

T = TypeVar("T")
_MAX_ID = 1 << 32
_PRESENT, _LAST = 1, 2
_NOBODY = bytes(8)  # in place of a follower and its window
LIST_LIMIT = 4200  # tasks of a guest, also of a hostile one


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Limits of the tasks of a machine: bytes of one log and of all of them, tasks that run, tasks that have ended."""

    log_bytes: int = 16 << 20
    all_log_bytes: int = 256 << 20
    running: int = 64
    ended: int = 1000


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Options of a start. `timeout`: seconds after which all of it is killed; None: never. `ttl`: seconds for which it
    is kept after its end. Without `keep_log` its log goes with its end, once those who read it have it.
    """

    timeout: float | None = None
    ttl: int = 600
    keep_log: bool = True
    limits: TaskLimits = TaskLimits()

    def encode(self) -> bytes:
        """Return the first fields of TASK_START."""
        limits = self.limits
        sizes = number(limits.log_bytes, 8) + number(limits.all_log_bytes, 8)
        counts = number(limits.running, 2) + number(limits.ended, 2)
        deadline = 0 if self.timeout is None else max(1, round(self.timeout * 1000))
        return number(self.keep_log, 1) + sizes + counts + number(deadline, 8) + number(self.ttl, 4)


class HeldTasks:
    """The tasks of a guest. Belongs to the event loop of its client.

    Any method raises GuestUnreachable if the guest does not answer, RequestUnknown or HoldUnsupported if the machine's
    kit has no tasks, and TaskNotFound for one that is not there.
    """

    def __init__(self, client: LinkOpener, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._outputs: dict[int, TaskOutput] = {}
        self._last = 0

    async def start(self, start: CommandStart, options: TaskOptions) -> TaskRecord:
        """Start a task and return its record. A program that cannot be started is a task that has failed.

        Raise NotStarted (a field that the guest would refuse), TerminalLimit (too many run), GuestCommandInvalid (the
        machine cannot start any). With GuestUnreachable the task may have been started.
        """
        link = await self._client.answering_link()
        return await self._start(link, start, options, _NOBODY, read=read_task)

    async def start_followed(
        self, start: CommandStart, options: TaskOptions, *, window: int, retained: int = 0
    ) -> tuple[TaskRecord, TaskOutput]:
        """Do what `start` does, and return the output, too, from its first byte."""
        link = await self._client.answering_link()
        output = self._new_output(0, 0, window, retained)

        def begin(fields: Fields) -> TaskRecord:
            record = read_task(fields)
            output.begin(link, record.id)
            return record

        follower = number(output.follower, 4) + number(window, 4)
        try:
            return await self._start(link, start, options, follower, read=begin), output
        except BaseException:
            self._forget(output)
            raise

    async def _start(
        self,
        link: HoldLink,
        start: CommandStart,
        options: TaskOptions,
        follower: bytes,
        *,
        read: Callable[[Fields], TaskRecord],
    ) -> TaskRecord:
        return await self._timed(link, Request.TASK_START, options.encode() + follower, start.encode(), read=read)

    async def list(self) -> Sequence[TaskRecord]:
        """Return all tasks, the newest first."""
        found: list[TaskRecord] = []
        more = True
        while more:
            before = found[-1].id if found else 0
            more, page = await self._repeated(Request.TASK_LIST, number(before, 8), read=read_tasks)
            ids = [before, *(each.id for each in page)]
            if any(newer and newer <= older for newer, older in itertools.pairwise(ids)):
                raise GuestGarbage
            found += page
            if len(found) > LIST_LIMIT:
                raise GuestGarbage
        return found

    async def show(self, task: int) -> TaskRecord:
        """Return the record of a task."""
        return await self._repeated(Request.TASK_SHOW, number(task, 8), read=partial(read_task, wanted=task))

    async def remove(self, task: int) -> TaskRecord:
        """Kill all of a task and forget it; return its record at its end."""
        link, read = await self._client.answering_link(), partial(read_task, wanted=task)
        return await self._timed(link, Request.TASK_REMOVE, number(task, 8), read=read)

    async def give_input(self, task: int, data: bytes, *, ends: bool) -> None:
        """Give input, all of it or none; `ends`: nothing follows it. Raise TerminalEnded, InputFull."""
        link = await self._client.answering_link()
        await self._timed(link, Request.TASK_INPUT, number(task, 8), number(ends, 1), data, read=read_nothing)

    async def follow(self, task: int, *, offset: int, window: int, retained: int = 0) -> TaskOutput:
        """Return the output from an offset on, or from the oldest that is kept. Raise GuestCommandInvalid for an
        offset that was not written.
        """
        output, _ = await self._follow(task, offset, window, retained, present=False, last=None)
        return output

    async def follow_last(self, task: int, size: int, window: int) -> tuple[TaskOutput, bool]:
        """Return at most the last `size` bytes of each output as they are now, and whether there were more."""
        return await self._follow(task, 0, window, 0, present=True, last=size)

    def close_output(self, output: TaskOutput) -> None:
        """Stop reading. Idempotent."""
        self._forget(output)
        output.leave()

    def receiver(self, otherwise: Receive) -> Receive:
        """Return a receiver of what a guest sends about tasks; `otherwise` takes the rest."""

        def receive(link: HoldLink, kind: int, about: int, fields: Fields) -> None:
            if kind not in (Answer.TASK_OUTPUT, Answer.TASK_ENDED):
                otherwise(link, kind, about, fields)
                return
            output = self._outputs.get(about)
            if output is None:
                return  # it was under way when the reader left
            if kind == Answer.TASK_OUTPUT:
                output.receive_output(link, fields)
            else:
                output.receive_end(link, fields)

        return receive

    async def _follow(
        self, task: int, offset: int, window: int, retained: int, *, present: bool, last: int | None
    ) -> tuple[TaskOutput, bool]:
        link = await self._client.answering_link()
        output = self._new_output(task, offset, window, retained)
        output.is_once = present

        def begin(fields: Fields) -> bool:
            is_cut = fields.number(1)
            fields.require_end()
            output.begin(link, task)
            return bool(is_cut)

        flags = (_PRESENT if present else 0) | (_LAST if last is not None else 0)
        wanted = number(window, 4) + number(flags, 1) + number(last or 0, 4) + number(offset, 8)
        head = number(task, 8) + number(output.follower, 4)
        try:
            is_cut = await self._timed(link, Request.TASK_FOLLOW, head, wanted, read=begin)
        except BaseException:
            self._forget(output)
            raise
        return output, is_cut

    def _new_output(self, task: int, offset: int, window: int, retained: int) -> TaskOutput:
        self._last = self._last % (_MAX_ID - 1) + 1
        output = TaskOutput(self._client, task, self._last, offset=offset, window=window, retained=retained)
        self._outputs[output.follower] = output
        return output

    def _forget(self, output: TaskOutput) -> None:
        self._outputs.pop(output.follower, None)

    async def _repeated(self, kind: Request, *parts: bytes, read: Callable[[Fields], T]) -> T:
        return await self._client.repeat_request(kind, *parts, read=read)

    async def _timed(self, link: HoldLink, kind: Request, *parts: bytes, read: Callable[[Fields], T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await link.request(kind, *parts, read=read)
        except TimeoutError as error:
            await link.close()
            raise GuestUnreachable(UNREACHABLE) from error
