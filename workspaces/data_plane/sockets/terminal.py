"""One terminal of a machine as the sockets of this process share it: read once, kept, sent to each at its own pace."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from django.conf import settings

from vmbackend.errors import BackendError, GuestUnreachable
from vmbackend.guest.hold import HeldTerminal, InputFull, TerminalExit
from workspaces.data_plane.sockets.modes import TerminalModes
from workspaces.data_plane.sockets.output import STUCK_SECONDS, OutputBuffer, OutputPlace, may_read

logger = logging.getLogger(__name__)

MAX_INPUT = 1 << 20  # bytes of one message, and of what a program has not read
RETRY_SECONDS = 0.5
FILL_SECONDS = 30.0
LAST_INPUT_SECONDS = 1.0
DETACH_SECONDS = 5.0
# A size change and back are two, also for a program that is slow to notice.
REPAINT_SECONDS = 0.1
# With a piece of output before each.
MODES_ATTEMPTS = 3
MAX_ROWS = 1000
# States of all machines: no more than this competes with the loop.
_states = ThreadPoolExecutor(max_workers=1, thread_name_prefix="terminal-state")


class Reader(Protocol):
    """A socket, as a terminal sees it."""

    def wake(self) -> None:
        """Wake the reader: there may be something to send."""


@dataclass(eq=False, slots=True)
class _Writing:
    data: bytes = field(repr=False)
    failed: Callable[[BackendError], None]


class SharedTerminal:
    """A terminal that sockets share. Belongs to one event loop. `unreachable` is called each time that the guest does
    not answer.
    """

    def __init__(
        self,
        held: HeldTerminal,
        size: tuple[int, int],
        start: int,
        unreachable: Callable[[], None],
    ) -> None:
        self.id = held.id
        self.size = size  # columns and rows
        self.output = OutputBuffer(start, settings.ENV.sandbox_output_bytes)
        self.exit: TerminalExit | None = None  # after all output before it
        self.gone = False
        self.places: dict[Reader, OutputPlace] = {}
        self._held = held
        self._unreachable = unreachable
        self._wanted = start  # read so far, even if no socket takes it
        self._refusals = 0
        self._changed = asyncio.Event()
        self._inputs: deque[_Writing] = deque()
        self._input_bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._repainting: asyncio.Task[None] | None = None
        self._reading = asyncio.ensure_future(self._read_forever())

    @property
    def over(self) -> bool:
        """Return whether no more output comes."""
        return self.gone or self.exit is not None

    @property
    def input_size(self) -> int:
        """Return bytes of input that the guest has not taken."""
        return self._input_bytes

    async def fill(self, end: int) -> None:
        """Read up to an offset that the guest has. Raise GuestUnreachable."""
        self._wanted = max(self._wanted, end)
        self._changed.set()
        try:
            async with asyncio.timeout(FILL_SECONDS):
                while (self.output.end < max(end, self.output.modes_at) or self.output.unknown) and not self.over:
                    await self._next_change()
        except TimeoutError as error:
            raise GuestUnreachable("The machine's terminal does not answer.") from error

    def attach(self, reader: Reader, offset: int, *, ack: bool) -> int:
        """Send it what follows `offset`, or the oldest byte after it; return how many bytes are gone."""
        place = OutputPlace(offset, ack=ack, now=self._now())
        skipped = place.skip_gap(self.output)
        self.places[reader] = place
        self._changed.set()
        reader.wake()
        return skipped

    async def state(self, reader: Reader, lines: int, *, ack: bool) -> tuple[bytes, int]:
        """Return the bytes that bring a fresh terminal to an offset, and that offset; `reader` is attached there.

        The reader gets no output until `resume`.
        """
        offset, make = self.output.end, self.output.state(lines)
        self.attach(reader, offset, ack=ack)
        place = self.places[reader]
        place.waits = True
        try:
            return await asyncio.get_running_loop().run_in_executor(_states, make), offset
        except BaseException:
            place.waits = False
            raise

    def resume(self, reader: Reader) -> None:
        """Go on with the output after a state."""
        if (place := self.places.get(reader)) is not None:
            place.waits = False
            reader.wake()

    def detach(self, reader: Reader) -> None:
        self.places.pop(reader, None)
        self._changed.set()

    def next_piece(self, reader: Reader) -> bytes:
        """Return the next piece for a socket; b"" if there is none."""
        data = self.places[reader].next_piece(self.output, self._now())
        if data:
            self._changed.set()
        return data

    def write(self, data: bytes, failed: Callable[[BackendError], None]) -> None:
        """Queue input; `failed` is called with what prevents its writing. Raise InputFull."""
        if self._input_bytes + len(data) > MAX_INPUT:
            raise InputFull("The program does not read its input, of which 1 MiB waits.")
        self._inputs.append(_Writing(data, failed))
        self._input_bytes += len(data)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write_queued())

    async def resize(self, cols: int, rows: int) -> None:
        self.size = await self._held.resize(cols, rows)

    def repaint(self) -> None:
        """Change the size and change it back, so that a full-screen program draws its screen again."""
        if self._repainting is None or self._repainting.done():
            self._repainting = asyncio.ensure_future(self._repaint())

    async def close(self) -> None:
        """Kill it."""
        await self._held.close()
        await self.release(detach=False)

    def end_replaced(self) -> None:
        """End this terminal; its id is another terminal's from now on: sockets get the rest of its output, and learn
        that it is gone.
        """
        self.gone = True
        for task in self._tasks():
            task.cancel()
        self._wake_all()

    async def release(self, *, detach: bool = True) -> None:
        """Stop reading; the terminal goes on in the guest. Input of a client that has left is written, for a while."""
        if self._writing is not None and not self.over:
            await asyncio.wait([self._writing], timeout=LAST_INPUT_SECONDS)
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if detach and not self.over:
            with suppress(BackendError, TimeoutError):
                async with asyncio.timeout(DETACH_SECONDS):
                    await self._held.detach()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for task in (self._reading, self._writing, self._repainting) if task is not None]

    async def _read_forever(self) -> None:
        while not self.over:
            await self._wait_room()
            try:
                at, data = await self._held.read()
            except GuestUnreachable:
                self._unreachable()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except BackendError:
                self.gone = True
            else:
                self._receive(at, data)
                if self.output.unknown and data:
                    await self._learn_modes()
            self._wake_all()

    def _receive(self, at: int, data: bytes) -> None:
        if not data:
            self.exit = self._held.exit
            return
        now, before = self._now(), self.output.end
        self.output.append(at, data)
        for place in self.places.values():
            if place.offset == before:
                place.moved_at = now  # it had everything

    async def _learn_modes(self) -> None:
        """Read the modes from the guest when it is attached again here: the guest has followed the modes in what this
        process has not read.

        A machine that was started with an older kit does not know them: the terminal then counts as a fresh one.
        """
        try:
            at, text = await self._held.modes()
        except BackendError as error:
            self._refusals += 1
            if self._refusals < MODES_ATTEMPTS:
                return
            logger.info("the modes of a terminal are not known: %s", error)
            at, text = self.output.modes_at, b""
        self._refusals = 0
        modes = TerminalModes()
        modes.feed(text)
        self.output.know_modes(at, modes)
        self._wanted = max(self._wanted, at)

    def _wake_all(self) -> None:
        self._changed.set()
        for reader in self.places:
            reader.wake()

    async def _wait_room(self) -> None:
        while self.output.end >= self._wanted and not (
            self.places and may_read(self.output, list(self.places.values()), self._now())
        ):
            with suppress(TimeoutError):
                async with asyncio.timeout(STUCK_SECONDS / 4):
                    await self._next_change()

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _write_queued(self) -> None:
        while self._inputs:
            item = self._inputs[0]
            try:
                await self._held.write(item.data)
            except BackendError as error:
                item.failed(error)
            finally:
                self._inputs.popleft()
                self._input_bytes -= len(item.data)

    async def _repaint(self) -> None:
        cols, rows = self.size
        with suppress(BackendError):
            await self._held.resize(cols, rows + 1 if rows < MAX_ROWS else rows - 1)
            try:
                await asyncio.sleep(REPAINT_SECONDS)
            finally:
                await self._held.resize(*self.size)  # a client may have changed it since

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
