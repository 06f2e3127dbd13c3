"""Terminals and watchers that come and go while sockets of a runtime are open, and events of the watchers.

One for all sockets of a process, as each kept watch is read once. It asks the guest, which answers when there is
something new.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol
from weakref import WeakValueDictionary

from common.sse.calls import cancel_task
from vmbackend.errors import BackendError
from vmbackend.guest.hold import KeptWatch, WatchNotFound
from vmbackend.guest.hold.kept_watches import MAX_KEPT
from workspaces.data_plane.sockets.machine import MachineTerminals
from workspaces.data_plane.sockets.terminal import SharedTerminal
from workspaces.runtime.sockets.events import ENDED, event_frames, overflow_frame, ready_frame

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
# Between two looks at a machine whose terminals come and go, however fast; and as long as a look took.
LOOK_SECONDS = 0.05
# Of the loop's time that events of one watcher take at most, a quarter; others are served meanwhile.
PAUSE_FACTOR = 3
# With those that the guest does not list any more, and whose last events are still read.
MAX_WATCHES = 4 * MAX_KEPT
LOST = "Events were lost before they were read."


class Listener(Protocol):
    """A socket, as it learns of what is new."""

    def tell_terminal(self, terminal: SharedTerminal) -> None:
        """Take a terminal; called again for those that it has."""

    def tell_watcher(self, watcher_id: int, frame: str) -> None:
        """Take the first frame of a watcher; called again for those that it has."""

    def tell_event(self, watcher_id: int, frame: str) -> None:
        """Take a frame of a watcher."""

    def forget_watcher(self, watcher_id: int) -> None:
        """Forget a watcher of which nothing more comes."""

    @property
    def has_many_events(self) -> bool:
        """Return whether it would lose events now."""


class MachineNews:
    """The news of one machine. Belongs to the event loop of its terminals; runs while there are listeners."""

    def __init__(self, machine: MachineTerminals) -> None:
        self._machine = machine
        self._listeners: set[Listener] = set()
        self._watches: dict[int, tuple[KeptWatch, asyncio.Task[None]]] = {}
        self._taken = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._look_again = asyncio.Event()

    def join(self, listener: Listener, watches: Sequence[KeptWatch]) -> None:
        """Tell a listener what there is, and what comes; `watches` were there before it came."""
        self._listeners.add(listener)
        for watch in watches:
            self._follow(watch, watch.end)
            listener.tell_watcher(watch.id, ready_frame(watch))  # before its first event
        self._look_again.set()
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look_forever())

    async def leave(self, listener: Listener) -> None:
        """Tell a listener nothing more; the last one ends all."""
        self._listeners.discard(listener)
        self._taken.set()
        if self._listeners:
            return
        looking, self._looking = self._looking, None
        watches, self._watches = list(self._watches.values()), {}
        for task in (looking, *(task for _, task in watches)):
            if task is not None:
                await cancel_task(task)
        for terminal in list(self._machine.terminals.values()):  # one that was opened just now, too
            await self._machine.release_unread(terminal)

    def note_taken(self) -> None:
        """Note that a listener has room for events again."""
        self._taken.set()

    async def _look_forever(self) -> None:
        known = 0
        while True:
            self._look_again.clear()
            begun = time.monotonic()
            try:
                await self._look()
                took = time.monotonic() - begun
                known = await self._wait_change(known)
                await asyncio.sleep(LOOK_SECONDS + took)
            except BackendError as error:
                logger.info("the terminals of a machine cannot be listed: %s", error)
                self._machine.check_soon()
                known = 0
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait_change(self, known: int) -> int:
        """Return the number of the last change, once there is one or a listener has come."""
        changed = asyncio.ensure_future(self._machine.wait_change(known))
        again = asyncio.ensure_future(self._look_again.wait())
        try:
            await asyncio.wait([changed, again], return_when=asyncio.FIRST_COMPLETED)
            return changed.result() if changed.done() else known
        finally:
            again.cancel()
            if not changed.done():
                changed.cancel()
                await asyncio.wait([changed])

    async def _look(self) -> None:
        await self._look_for_terminals()
        await self._look_for_watches()

    async def _look_for_terminals(self) -> None:
        known = list(self._machine.terminals.values())
        entries = await self._machine.list()
        self._machine.end_missing(known, {entry.id for entry in entries})
        for entry in entries:
            with suppress(BackendError):  # it is gone again, or this process has as many as it may
                self._tell_terminal(await self._machine.open(entry.id))

    async def _look_for_watches(self) -> None:
        found = {watch.id: watch for watch in await self._machine.kept_watches.list()}
        for id in [id for id in self._watches if id not in found]:
            if self._watches[id][1].done() or len(self._watches) > MAX_WATCHES - MAX_KEPT:
                await self._forget(id)
        for watch in found.values():
            self._follow(watch, watch.start)
        for watch, _ in self._watches.values():
            self._tell_ready(watch)

    async def _forget(self, id: int) -> None:
        _, reading = self._watches.pop(id)
        if not reading.done():
            await cancel_task(reading)
            self._tell_event(id, overflow_frame(id, ENDED))
        self._tell(lambda listener: listener.forget_watcher(id))

    def _follow(self, watch: KeptWatch, start: int) -> None:
        if watch.id not in self._watches and watch.active:
            self._watches[watch.id] = watch, asyncio.ensure_future(self._read(watch, start))

    def _tell_terminal(self, terminal: SharedTerminal) -> None:
        self._tell(lambda listener: listener.tell_terminal(terminal))

    def _tell_ready(self, watch: KeptWatch) -> None:
        frame = ready_frame(watch)
        self._tell(lambda listener: listener.tell_watcher(watch.id, frame))

    def _tell(self, tell: Callable[[Listener], None]) -> None:
        for listener in list(self._listeners):
            tell(listener)

    async def _read(self, watch: KeptWatch, at: int) -> None:
        """Read a watch from an event on, to its end."""
        while True:
            await self._wait_room()
            try:
                found = await self._machine.kept_watches.read(watch.id, at)
            except WatchNotFound:
                self._tell_event(watch.id, overflow_frame(watch.id, ENDED))
                return
            except BackendError:
                self._machine.check_soon()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            begun = time.thread_time()
            if found.start > at:
                self._tell_event(watch.id, overflow_frame(watch.id, LOST))
            for event in found.events:
                for frame in event_frames(watch, event):
                    self._tell_event(watch.id, frame)
            at = found.end
            await asyncio.sleep(PAUSE_FACTOR * (time.thread_time() - begun))

    def _tell_event(self, watcher_id: int, frame: str) -> None:
        self._tell(lambda listener: listener.tell_event(watcher_id, frame))

    async def _wait_room(self) -> None:
        """Wait until a listener has room for events: the slow ones lose some."""
        while all(listener.has_many_events for listener in self._listeners):
            self._taken.clear()
            await self._taken.wait()


# As long as a socket has them: they have the machine, which would never be forgotten as a weak key.
_by_machine: WeakValueDictionary[MachineTerminals, MachineNews] = WeakValueDictionary()


def news_of(machine: MachineTerminals) -> MachineNews:
    """Return the news of a machine, for its event loop."""
    return _by_machine.setdefault(machine, MachineNews(machine))
