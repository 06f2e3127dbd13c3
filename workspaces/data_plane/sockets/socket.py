"""One open socket to a machine's terminals: what it is sent, in which order."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable

from workspaces.data_plane.sockets.machine import MachineTerminals
from workspaces.data_plane.sockets.output import OutputPlace
from workspaces.data_plane.sockets.terminal import SharedTerminal

# Bytes of messages that were not sent yet: a client that asks and does not read waits.
MAX_UNSENT = 256 * 1024
# Events that are sent before output has its turn again.
EVENTS_AT_ONCE = 32
SendData = Callable[[str | bytes], Awaitable[None]]


class MachineSocket:
    """A socket of terminals. Belongs to one event loop. `ended` has the reason once the machine does not run any more,
    `cut` says whether the end of this process ended it.
    """

    def __init__(self, machine: MachineTerminals) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.cut = False
        self.machine = machine
        self.attached: dict[int, SharedTerminal] = {}
        self._unsent: deque[str] = deque()
        self._unsent_size = 0
        self._awake = asyncio.Event()
        self._sent = asyncio.Event()

    async def prepare(self) -> None:
        """Look at the machine before the handshake. Raise what refuses the socket."""

    def wake(self) -> None:
        """Wake the sender: there may be something to send."""
        self._awake.set()

    def end(self, reason: str) -> None:
        """End the socket: the machine does not run any more."""
        if not self.ended.done():
            self.ended.set_result(reason)

    async def wait_turn(self) -> None:
        """Wait after a message: other sockets are served before the next one, also of many that came at once."""
        await asyncio.sleep(self.machine.pace.next_wait())

    async def wait_sent(self) -> None:
        """Wait while the client has asked for more than it reads."""
        while self._unsent_size > MAX_UNSENT or self.has_many_events:
            self._sent.clear()
            await self._sent.wait()

    def post_text(self, text: str) -> None:
        """Queue a message."""
        self._unsent.append(text)
        self._unsent_size += len(text)
        self._awake.set()

    async def send_forever(self, send: SendData) -> None:
        """Send messages first, then some of the events, then output, a piece of each terminal in turn."""
        while True:
            self._awake.clear()
            while self._unsent:
                text = self._unsent.popleft()
                await send(text)
                self._unsent_size -= len(text)
                self._sent.set()
            for _ in range(EVENTS_AT_ONCE):
                if (event := self.next_event()) is None:
                    break
                self._awake.set()  # there may be more
                await send(event)
                self._sent.set()
            for terminal in list(self.attached.values()):
                if not self._unsent:
                    await self._send_output(terminal, send)
            if not self._awake.is_set():
                await self._awake.wait()

    async def leave(self) -> None:
        """Detach from all terminals; they go on."""
        for terminal in self.attached.values():
            terminal.detach(self)
        left, self.attached = list(self.attached.values()), {}
        if len(self.machine.sockets) > 1 and not self.cut:  # else all of them are released together
            for terminal in left:
                await self.machine.release_unread(terminal)

    def attach(self, terminal: SharedTerminal, offset: int, *, ack: bool) -> int:
        """Send what follows `offset`, or the oldest byte after it; return how many bytes are gone."""
        self.attached[terminal.id] = terminal
        return terminal.attach(self, offset, ack=ack)

    def detach(self, terminal: SharedTerminal) -> None:
        """Send nothing more of a terminal."""
        terminal.detach(self)
        if self.attached.get(terminal.id) is terminal:
            del self.attached[terminal.id]

    @property
    def has_many_events(self) -> bool:
        """Return whether more events wait than the client may leave unread."""
        return False

    def next_event(self) -> str | None:
        """Return the next event to be sent; None if there is none."""
        return None

    @abstractmethod
    def tell_gap(self, terminal: SharedTerminal, place: OutputPlace, skipped: int) -> None:
        """Tell the client that so many bytes before the place are gone."""

    @abstractmethod
    def tell_end(self, terminal: SharedTerminal) -> None:
        """Tell the client that the terminal's program has ended, or that the terminal is gone."""

    async def _send_output(self, terminal: SharedTerminal, send: SendData) -> None:
        place = terminal.places.get(self)
        if place is None:
            if self.attached.get(terminal.id) is terminal:
                del self.attached[terminal.id]
            return
        if place.waits:
            return
        if skipped := place.skip_gap(terminal.output):
            self.tell_gap(terminal, place, skipped)
            return
        data = terminal.next_piece(self)
        if data:
            self._awake.set()  # there may be more
            await send(bytes((terminal.id,)) + data)
        elif terminal.over and place.offset == terminal.output.end and not place.end_sent:
            place.end_sent = True
            self.tell_end(terminal)
