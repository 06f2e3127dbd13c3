"""Standard input of a streamed command that comes in parts, each by a request of its own.

No request lasts as long as the command, so parts and output share no connection, and each part can be sent again: its
offset says which bytes are there already. Belongs to the event loop that serves the requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from common.errors import Conflict, NotFound

# How long a part may wait for the command to read the part before it.
ROOM_SECONDS = 20.0


class InputFull(Conflict):
    code = "input_full"
    message = "The command does not read its input; send the same part again."


class InputClosed(Conflict):
    code = "input_closed"
    message = "The command reads no more input."


class CommandInput(AsyncIterator[bytes]):
    """The input of one command: at most one part waits until the guest takes it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parts: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue(1)
        self._turn = asyncio.Lock()
        self._offset = 0
        self._is_complete = self._is_closed = self._was_last = False

    async def put(self, offset: int, data: bytes, *, ends: bool) -> None:
        """Pass on the part of `data` that is new. Raise InputFull, InputClosed and Conflict (bytes before it are
        missing).
        """
        async with self._turn:
            if offset > self._offset:
                raise Conflict(f"The part begins at {offset}; the next byte is {self._offset}.")
            new = data[self._offset - offset :]
            if new or (ends and not self._is_complete):
                await self._pass_on((new, ends))
                self._offset += len(new)
                self._is_complete = ends

    async def _pass_on(self, part: tuple[bytes, bool]) -> None:
        if self._is_complete or self._is_closed:
            raise InputClosed
        try:
            async with asyncio.timeout(ROOM_SECONDS):
                await self._parts.put(part)
        except TimeoutError as exc:
            raise InputFull from exc
        if self._is_closed:
            raise InputClosed

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the parts until the last, on whatever loop reads them."""
        return self

    async def __anext__(self) -> bytes:
        if self._was_last:
            raise StopAsyncIteration
        taken = asyncio.run_coroutine_threadsafe(self._parts.get(), self._loop)
        part, self._was_last = await asyncio.wrap_future(taken)
        return part

    async def aclose(self) -> None:
        """Close the input. The reader calls this on its own loop when it reads no more."""
        self._loop.call_soon_threadsafe(self.close)

    def close(self) -> None:
        """Refuse further parts, also parts that wait."""
        self._is_closed = True
        while not self._parts.empty():  # so that parts that wait for room wait no longer
            self._parts.get_nowait()


_open: dict[tuple[str, str], CommandInput] = {}


@contextmanager
def open_input(workspace_id: str, key: str) -> Iterator[CommandInput]:
    """Yield the input of a command, which runs until the context ends. Raise Conflict if another command has
    this key.
    """
    if (workspace_id, key) in _open:
        raise Conflict("A command with this `stdin_key` runs already.")
    made = _open[workspace_id, key] = CommandInput()
    try:
        yield made
    finally:
        made.close()
        del _open[workspace_id, key]


def input_of(workspace_id: str, key: str) -> CommandInput:
    """Return the input of a command. Raise NotFound: no such command runs, or it has not begun."""
    try:
        return _open[workspace_id, key]
    except KeyError as exc:
        raise NotFound("No command with this `stdin_key` runs; it may not have begun.") from exc
