"""A watch of a guest's folder: the events below it, across any number of connections."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from .errors import WatchNotFound
from .frames import Fields, GuestGarbage, Request, number, read_nothing, text, texts
from .link import HoldLink, LinkOpener

MAX_PATH_BYTES = 4096
_HEAD_BYTES = 9  # of a frame, which the window counts


class WatchKind(IntEnum):
    """The kinds of events of a watch."""

    ADDED = 2
    CHANGED = 3
    REMOVED = 4
    RENAMED = 5
    OVERFLOW = 6  # events below `path` were lost; `other` is the reason. The watch goes on.
    GONE = 7  # the folder itself was removed or renamed; the last event


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """An event of a watch. Paths are relative to the watched folder, "" is itself; bytes that are no UTF-8 are kept by
    surrogateescape.

    `other`: the new path of what was renamed, with all that is in it; the reason of an overflow or an end.
    """

    kind: WatchKind
    is_folder: bool
    path: str
    other: str

    def path_below(self, folder: str) -> str:
        """Return the path, absolute, if that is the watched folder."""
        return _absolute(folder, self.path)

    def other_below(self, folder: str) -> str:
        """Return the new path of what was renamed, absolute."""
        return _absolute(folder, self.other)

    @property
    def reason(self) -> str:
        """Return the reason of an overflow: words of the guest, printable and few."""
        return "".join(letter if letter.isprintable() else "?" for letter in self.other[:100])


def _absolute(folder: str, path: str) -> str:
    return f"{folder.rstrip('/')}/{path}" if path else folder


class HeldWatch:
    """A watch of the guest. Belongs to the event loop of its client; one reader at a time.

    It ends with its connection; `read` begins it again on the next one, with an overflow of the reason `reconnected`.
    Events that are not read use at most `window` bytes; then the guest keeps them, and reports an overflow when it has
    too many. `folder` is the guest's, absolute; a folder that a line of gitignore in `patterns` names is not entered.
    """

    def __init__(self, client: LinkOpener, folder: str, patterns: Sequence[str], window: int) -> None:
        self.id = 0
        self._client = client
        self._window = window
        self._fields = text(folder) + texts(patterns)
        self._events: deque[tuple[WatchEvent, int]] = deque()
        self._link: HoldLink | None = None
        self._received = 0  # bytes of frames
        self._read = 0
        self._credited = 0
        self._granted = 0
        self._ended = False
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()

    async def read(self) -> WatchEvent:
        """Return the next event. Raise GuestUnreachable, GuestPathInvalid (no such folder), TerminalLimit;
        repeatable.
        """
        async with self._reading:
            while not self._events:
                if self._ended:
                    return WatchEvent(WatchKind.GONE, True, "", "")
                former = self._link
                link = await self.begin()
                if link is not former:
                    return WatchEvent(WatchKind.OVERFLOW, True, "", "reconnected")
                self._changed.clear()
                if not self._events:
                    await self._wait_change(link)
            event, size = self._events.popleft()
            self._read += size
            self._grant()
            self._ended = self._ended or event.kind == WatchKind.GONE
            return event

    async def begin(self) -> HoldLink:
        """Begin it, unless it runs on the client's present connection; takes as long as the guest reads the tree.

        Raise what `read` raises. One that is cancelled leaves nothing in the guest.
        """
        link = await self._client.connect_guest()
        if self._link is link:
            return link
        self._client.forget_watch(self.id)
        abandoned = False

        def started(fields: Fields) -> None:
            id = fields.number(4)
            fields.require_end()
            self._start(link, id)
            if abandoned:
                self._abandon(link)

        asked = asyncio.ensure_future(link.request(Request.WATCH, number(self._window, 4), self._fields, read=started))
        try:
            await asyncio.shield(asked)
        except asyncio.CancelledError:
            abandoned = True
            asked.add_done_callback(_see_result)
            if self._link is link:  # it had begun at the same moment
                self._abandon(link)
            raise
        return link

    async def close(self) -> None:
        """End it. Raise GuestUnreachable if the guest is not reached: it has ended there, too, then. Idempotent."""
        self._client.forget_watch(self.id)
        link, self._link, self._ended = self._link, None, True
        self._changed.set()
        if link is not None and not link.lost.done():
            with suppress(WatchNotFound):
                await link.request(Request.UNWATCH, number(self.id, 4), read=read_nothing)

    def _abandon(self, link: HoldLink) -> None:
        self._client.forget_watch(self.id)
        self._link = None
        link.post(Request.UNWATCH, number(self.id, 4))

    def _start(self, link: HoldLink, id: int) -> None:
        self.id, self._link, self._granted = id, link, self._window
        self._received = self._read = self._credited = 0
        self._events.clear()  # of the connection before, which is reported as a loss
        self._client.register_watch(id, self.receive_event)

    def receive_event(self, link: HoldLink, fields: Fields) -> None:
        """Take an event of the guest. Raise GuestGarbage if it is not an event, and for more than was granted."""
        if self._link is not link:
            return
        size = fields.size + _HEAD_BYTES
        event = read_event(fields)
        fields.require_end()
        self._received += size
        if self._received > self._granted + 2 * MAX_PATH_BYTES + 64:  # the last one may reach beyond the window
            raise GuestGarbage
        self._events.append((event, size))
        self._changed.set()

    def _grant(self) -> None:
        if self._link is None or self._read - self._credited < self._window // 4:
            return
        self._credited = self._read
        self._granted = self._read + self._window
        self._link.post(Request.WATCH_CREDIT, number(self.id, 4), number(self._read, 8), number(self._window, 4))

    async def _wait_change(self, link: HoldLink) -> None:
        changed = asyncio.ensure_future(self._changed.wait())
        waited: list[asyncio.Future[Any]] = [changed, link.lost]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()


def _see_result(asked: asyncio.Future[None]) -> None:
    if not asked.cancelled():
        asked.exception()


def read_event(fields: Fields) -> WatchEvent:
    """Return the next event of a frame. Raise GuestGarbage if it is none."""
    kind, is_folder = fields.number(1), fields.number(1)
    path, other = fields.path(MAX_PATH_BYTES), fields.path(MAX_PATH_BYTES)
    if kind not in set(WatchKind):
        raise GuestGarbage
    return WatchEvent(WatchKind(kind), bool(is_folder), path, other)
