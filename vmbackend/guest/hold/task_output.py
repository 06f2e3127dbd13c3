"""Reading of a task's two outputs, by offset, across any number of connections."""

from __future__ import annotations

import asyncio
from typing import Any

from vmbackend.errors import GuestUnreachable
from vmbackend.guest.translate import UNREACHABLE

from .frames import Fields, GuestGarbage, Request, number
from .link import HoldLink, LinkOpener
from .task_pieces import TaskPiece, TaskPieces
from .task_record import INTERRUPTED, TaskRecord, read_task

_MAX_WINDOW = (1 << 32) - 1
_OUTPUTS = (1, 2)


class TaskOutput:
    """The output of one task from an offset on. Belongs to the event loop of its client; one reader at a time.

    What is not read uses at most `window` bytes of memory. The guest keeps the last `retained` bytes that were read,
    as far as it keeps any, because their reader may not have passed them on when it is killed.
    """

    def __init__(
        self, client: LinkOpener, task: int, follower: int, *, offset: int, window: int, retained: int = 0
    ) -> None:
        self.follower = follower
        self.is_once = False  # what there is now, on one connection
        self._client = client
        self._task = task
        self._window = window
        self._retained = retained
        self._pieces = TaskPieces(offset)
        self._end: TaskRecord | None = None
        self._link: HoldLink | None = None
        self._read = self._received = self._credited = self._continuous_from = offset
        self._granted = offset + window
        self._changed = asyncio.Event()

    async def read(self) -> TaskPiece | TaskRecord:
        """Return the next bytes, at most 32 KiB; the task's record at its end, or at the end of what was asked for.

        Raise GuestUnreachable: what follows can be read from the last offset on, also by the same call. Raise
        TaskNotFound if the task is gone.
        """
        while not self._pieces:
            if self._end is not None:
                return self._end
            link = await self._followed()
            self._changed.clear()
            if not self._pieces and self._end is None:
                await self._wait_change(link)
        piece = self._pieces.take()
        self._read = piece.end
        self._grant()
        return piece

    def leave(self) -> None:
        """Stop: the guest keeps what was not received for a minute. Idempotent."""
        link, self._link = self._link, None
        if link is not None and self._end is None:
            link.post(Request.TASK_LEAVE, number(self._task, 8), number(self.follower, 4))

    # For the client

    def begin(self, link: HoldLink, task: int) -> None:
        """Begin on the link on which the guest has accepted it."""
        self._link, self._task = link, task

    def receive_output(self, link: HoldLink, fields: Fields) -> None:
        """Take the next bytes. Raise GuestGarbage for others, and for more than was granted."""
        if self._link is not link:
            return
        offset, output, data = fields.offset(), fields.number(1), fields.rest()
        lost = offset - self._received
        if lost < 0 or output not in _OUTPUTS or not data or self._end is not None:
            raise GuestGarbage
        if lost:
            self._granted += lost
            self._continuous_from = offset
        self._received = offset + len(data)
        if self._received > self._granted:
            raise GuestGarbage
        self._pieces.add(offset, output, data)
        self._changed.set()

    def receive_end(self, link: HoldLink, fields: Fields) -> None:
        """Take the task's record. Raise GuestGarbage for another's, a second one, and one before the end."""
        if self._link is not link:
            return
        record = read_task(fields, self._task)
        is_short = record.log_end < self._received and record.error != INTERRUPTED
        if self._end is not None or is_short or not (record.is_over or self.is_once):
            raise GuestGarbage
        self._end = record
        self._changed.set()

    def _grant(self) -> None:
        """Let the guest send more, once a quarter of the window was read."""
        if self._link is None or self._read - self._credited < self._window // 4:
            return
        self._credited = self._read
        self._granted = max(self._granted, self._read + self._window)
        received = min(max(self._read - self._retained, self._continuous_from), self._read)
        # What is gone after bytes that were not read yet may be any number.
        rights = number(received, 8), number(min(self._granted - received, _MAX_WINDOW), 4)
        self._link.post(Request.TASK_CREDIT, number(self._task, 8), number(self.follower, 4), *rights)

    async def _followed(self) -> HoldLink:
        link = await self._client.connect_guest()
        if self._link is link:
            return link
        if self._link is not None and self.is_once:
            raise GuestUnreachable(UNREACHABLE)
        self._link = None
        offset = self._received = self._credited = self._continuous_from = self._read
        self._granted = offset + self._window

        def begin(fields: Fields) -> None:
            fields.number(1)
            fields.require_end()
            self._link = link

        rights = number(self._window, 4), number(0, 1), number(0, 4), number(offset, 8)
        await link.request(Request.TASK_FOLLOW, number(self._task, 8), number(self.follower, 4), *rights, read=begin)
        return link

    async def _wait_change(self, link: HoldLink) -> None:
        changed = asyncio.ensure_future(self._changed.wait())
        waited: list[asyncio.Future[Any]] = [changed, link.lost]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
