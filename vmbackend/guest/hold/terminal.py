"""One terminal of a guest, as a client sees it: output by offset, across any number of connections."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

from .errors import TerminalNotFound
from .frames import Fields, GuestGarbage, Request, number, read_nothing
from .link import HoldLink, LinkOpener
from .terminal_fields import TerminalExit, clamp_size, read_exit

INPUT_PIECE = 32 * 1024  # bytes of a request
MAX_MODES = 1024  # bytes


def _read_modes(fields: Fields) -> tuple[int, bytes]:
    offset, text = fields.offset(), fields.rest()
    if len(text) > MAX_MODES:
        raise GuestGarbage
    return offset, text


class HeldTerminal:
    """A terminal of the guest. Belongs to the event loop of its client; one reader at a time.

    Any method raises GuestUnreachable if the guest does not answer; the terminal itself is not affected, and the
    method may be called again later: `read` goes on where it was. TerminalNotFound: it is gone for good.
    Unread output uses at most `window` bytes of memory, and stops the program once the guest's buffer is full.
    """

    def __init__(self, client: LinkOpener, id: int, *, offset: int, window: int, retained: int = 0) -> None:
        self.id = id
        self.exit: TerminalExit | None = None  # set once all output before it was received
        self._client = client
        self._window = window
        self._retained = retained
        self._pieces: deque[tuple[int, bytes]] = deque()  # with their offsets
        self._read = offset  # of the next byte that `read` returns
        self._received = offset  # of the next byte that the guest sends
        self._granted = 0  # the guest may send up to this offset
        self._attached_at = offset
        self._credited = offset
        self._link: HoldLink | None = None  # on which it is attached
        self._gone = False
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()

    @property
    def offset(self) -> int:
        """Return the offset of the next byte that `read` returns: where another client can go on."""
        return self._read

    async def read(self) -> tuple[int, bytes]:
        """Return the next output and its offset, at most 64 KiB; b"" after the program's end.

        An offset beyond that of the last call's end means that the guest has forgotten what was between: it only does
        while no client is attached, or after this one took nothing for some seconds and another one did.
        """
        async with self._reading:
            while not self._pieces:
                if self.exit is not None:
                    return self._read, b""
                link = await self._attached()
                self._changed.clear()
                if not self._pieces and self.exit is None:
                    await self._wait_change(link)
            at, data = self._pieces.popleft()
            self._read = at + len(data)
            self._grant()
            return at, data

    async def write(self, data: bytes) -> None:
        """Write input; return when the guest's kernel has it all, and so waits while the program does not read.

        Raise TerminalEnded, InputFull. With GuestUnreachable some of it may have been written. Calls at the same time
        are written one after another in pieces of 32 KiB.
        """
        for start in range(0, len(data), INPUT_PIECE):
            link = await self._connected()
            piece = data[start : start + INPUT_PIECE]
            await link.request(Request.INPUT, number(self.id, 4), piece, read=read_nothing)

    async def modes(self) -> tuple[int, bytes]:
        """Return the offset of the oldest byte that the guest keeps, and what sets the modes before it in a fresh
        terminal.

        Its last sequence may be incomplete, and goes on with that byte. Also raise GuestUnreachable if the machine
        was started with a kit that does not know them.
        """
        return await self._client.repeat_request(Request.MODES, number(self.id, 4), read=_read_modes)

    async def resize(self, cols: int, rows: int) -> tuple[int, int]:
        """Set the size in characters, each clamped to 1..1000, and return it; the foreground group gets SIGWINCH."""
        size = clamp_size(cols, rows)
        fields = number(self.id, 4) + number(size[0], 2) + number(size[1], 2)
        await self._connected()
        await self._client.repeat_request(Request.RESIZE, fields, read=read_nothing)
        return size

    async def wait(self) -> TerminalExit:
        """Wait for the program's end, which is reported only after all output was read."""
        while self.exit is None:
            link = await self._attached()
            self._changed.clear()
            if self.exit is None:
                await self._wait_change(link)
        return self.exit

    async def detach(self) -> None:
        """Stop receiving; the program goes on, and its terminal stays. `read` attaches again. Idempotent."""
        link, self._link = self._link, None
        self._pieces.clear()
        self._received = self._read
        if link is not None and not link.lost.done():
            await link.request(Request.DETACH, number(self.id, 4), read=read_nothing)

    async def close(self) -> None:
        """Kill all processes of the terminal and forget it; after its program's end, only forget it. Idempotent."""
        if not self._gone:  # its id may be that of another one
            self._client.forget_terminal(self.id)
        with suppress(TerminalNotFound):  # closed before
            await self._connected()
            await self._client.repeat_request(Request.CLOSE, number(self.id, 4), read=read_nothing)

    # For the client

    def mark_gone(self) -> None:
        """Mark the terminal as gone with the guest's process. Received output can still be read."""
        self._gone = True

    def begin_output(self, link: HoldLink) -> None:
        """Begin the output of a terminal that was created on this link, with the client's window."""
        self._link, self._granted = link, self._window

    def receive_output(self, link: HoldLink, fields: Fields) -> None:
        """Take the guest's next output. Raise GuestGarbage for any other, and for more than was granted."""
        if self._link is not link:
            return  # still under way when it was detached
        at, data = fields.number(8), fields.rest()
        if at != self._received or not data or at + len(data) > self._granted or self.exit is not None:
            raise GuestGarbage
        self._received += len(data)
        # Few pieces, however small those of the guest are.
        start, before = self._pieces[-1] if self._pieces else (0, b"")
        if start + len(before) == at and 0 < len(before) <= INPUT_PIECE - len(data):
            self._pieces[-1] = start, before + data
        else:
            self._pieces.append((at, data))
        self._changed.set()

    def receive_exit(self, link: HoldLink, fields: Fields) -> None:
        """Take the end of the program. Raise GuestGarbage if not all output came before."""
        if self._link is not link:
            return
        ended, end = read_exit(fields), fields.number(8)
        fields.require_end()
        if end != self._received:
            raise GuestGarbage
        self.exit = ended
        self._changed.set()

    def receive_behind(self, link: HoldLink, fields: Fields) -> None:
        """Record that this client took nothing while another one did, and is not waited for: `read` attaches again,
        after a gap.
        """
        fields.require_end()
        if self._link is link:
            self._link = None
            self._changed.set()

    def _grant(self) -> None:
        """Let the guest send more, once a quarter of the window was read."""
        if self._link is None or self._read - self._credited < self._window // 4:
            return
        self._credited = self._read
        self._granted = max(self._granted, self._read + self._window)
        received = max(self._read - self._retained, self._attached_at)
        self._link.post(Request.CREDIT, number(self.id, 4), number(received, 8), number(self._granted - received, 4))

    async def _connected(self) -> HoldLink:
        link = await self._client.connect_guest()
        self._require_known()
        return link

    def _require_known(self) -> None:
        if self._gone:
            raise TerminalNotFound("The machine or its terminal service started again: the terminal is gone.")

    async def _attached(self) -> HoldLink:
        link = await self._connected()
        if self._link is link:
            return link
        self._link = None
        offset = self._received
        window = max(0, self._read + self._window - offset)

        def begin(fields: Fields) -> None:
            at = fields.offset()
            fields.part(4)  # its size
            fields.require_end()
            if at < offset:
                raise GuestGarbage
            self._link, self._attached_at, self._received, self._granted = link, at, at, at + window
            # Nothing to read before the gap: its end is where reading is.
            if not self._pieces:
                self._read = self._credited = at

        await link.request(Request.ATTACH, number(self.id, 4), number(offset, 8), number(window, 4), read=begin)
        return link

    async def _wait_change(self, link: HoldLink) -> None:
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            waited: list[asyncio.Future[Any]] = [changed, link.lost]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
