"""One open socket of a runtime: its frames, and what it is sent."""

from __future__ import annotations

import json
from typing import Any

from vmbackend.errors import BackendError
from vmbackend.guest.hold import KeptWatch
from workspaces.data_plane.sockets.machine import MachineTerminals
from workspaces.data_plane.sockets.output import OutputPlace
from workspaces.data_plane.sockets.socket import MachineSocket
from workspaces.data_plane.sockets.terminal import SharedTerminal
from workspaces.guests import guest_errors
from workspaces.runtime.held import TooManyTerminals, held_errors
from workspaces.runtime.sockets.events import WaitingEvents
from workspaces.runtime.sockets.messages import Attach, Frame, FrameInvalid, Input, Resize, parse_frame
from workspaces.runtime.sockets.news import news_of
from workspaces.runtime.terminals.services import exit_code_of

KILLED = 137  # of a terminal that is gone: it was removed, or died with what kept it


class RuntimeSocket(MachineSocket):
    """A socket with the output of all terminals, and the events of all watchers, from the moment that it opens."""

    def __init__(self, machine: MachineTerminals) -> None:
        super().__init__(machine)
        self._news = news_of(machine)
        self._events = WaitingEvents()
        self._watchers: set[int] = set()
        # As the socket opened: what comes later is sent from its beginning.
        self._ends: dict[int, int] = {}
        self._found: list[KeptWatch] = []

    async def prepare(self) -> None:
        """Look for what is there. Raise GuestKitOutdated, GuestUnreachable."""
        with guest_errors(), held_errors(TooManyTerminals):
            self._ends = {entry.id: entry.end for entry in await self.machine.list()}
            self._found = await self.machine.kept_watches.list()

    def begin(self) -> None:
        """Begin to learn of the terminals and watchers."""
        self._news.join(self, self._found)

    async def serve_message(self, data: str | bytes) -> None:
        """Do what one frame asks for. Errors are sent; none ends the socket."""
        try:
            await self._handle(parse_frame(data))
        except FrameInvalid as error:
            self._post_error(error.code, error.message, error.id)
        await self.wait_sent()

    async def leave(self) -> None:
        """Detach from everything; terminals and watchers go on."""
        await super().leave()
        await self._news.leave(self)

    # For the news

    def tell_terminal(self, terminal: SharedTerminal) -> None:
        """Attach to a terminal, if it is not attached: where its output was as the socket opened."""
        if self.attached.get(terminal.id) is not terminal:
            self.attach(terminal, self._ends.pop(terminal.id, 0), ack=False)
            self._post_state(terminal)

    def tell_watcher(self, watcher_id: int, frame: str) -> None:
        """Take the first frame of a watcher, once."""
        if watcher_id not in self._watchers:
            self._watchers.add(watcher_id)
            self.tell_event(watcher_id, frame)

    def tell_event(self, watcher_id: int, frame: str) -> None:
        """Take a frame of a watcher that the client knows."""
        if watcher_id in self._watchers:
            self._events.add(watcher_id, frame)
            self.wake()

    def forget_watcher(self, watcher_id: int) -> None:
        """Forget a watcher; what its client has not taken yet is still sent."""
        self._watchers.discard(watcher_id)
        self._events.forget(watcher_id)

    # For the sender

    @property
    def has_many_events(self) -> bool:
        return self._events.is_full

    def next_event(self) -> str | None:
        frame = self._events.take()
        if frame is not None:
            self._news.note_taken()
        return frame

    def tell_gap(self, terminal: SharedTerminal, place: OutputPlace, skipped: int) -> None:
        self._post("skipped", terminal.id, bytes=skipped)

    def tell_end(self, terminal: SharedTerminal) -> None:
        code = exit_code_of(terminal.exit)
        self._post("exit", terminal.id, code=KILLED if code is None else code)
        if terminal.gone:
            self.detach(terminal)

    async def _handle(self, frame: Frame) -> None:
        terminal = self.attached.get(frame.id)
        if terminal is None:
            raise FrameInvalid("terminal_not_found", "There is no such terminal.", frame.id)
        try:
            if isinstance(frame, Input):
                self._write(terminal, frame)
            elif isinstance(frame, Resize):
                await terminal.resize(frame.cols, frame.rows)
            else:
                self._attach_at(terminal, frame)
        except BackendError as error:
            raise FrameInvalid(error.code, error.message, frame.id) from error

    def _write(self, terminal: SharedTerminal, frame: Input) -> None:
        if terminal.over:
            raise FrameInvalid("terminal_ended", "The terminal's program has ended.", frame.id)
        if frame.data:
            self.machine.require_input_room(len(frame.data))
            terminal.write(frame.data, lambda error: self._post_error(error.code, error.message, frame.id))

    def _attach_at(self, terminal: SharedTerminal, frame: Attach) -> None:
        if frame.offset > terminal.output.end:
            raise FrameInvalid("validation_error", "offset: the terminal has not written that many bytes.", frame.id)
        if skipped := self.attach(terminal, frame.offset, ack=False):
            self._post("skipped", terminal.id, bytes=skipped)
        self._post_state(terminal)  # what was on its way comes before it

    def _post_state(self, terminal: SharedTerminal) -> None:
        self._post("state", terminal.id, start=terminal.output.start, offset=terminal.places[self].offset)

    def _post_error(self, code: str, message: str, id: int | None) -> None:
        self._post("error", id, code=code, message=message)

    def _post(self, kind: str, id: int | None, **fields: Any) -> None:
        ids = {} if id is None else {"id": str(id)}
        self.post_text(json.dumps({"channel": "terminal", "type": kind, **ids, **fields}))
