"""Terminals of a sandbox: programs whose output comes while they run, over connections that may be lost."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from microvm.aio.waiting import Lock, sleep
from microvm.errors import ConnectionFailed
from microvm.sockets import (
    FIRST_PATIENCE,
    FIRST_WAIT,
    INPUT_PIECE,
    LONGEST_WAIT,
    MOST_MESSAGE,
    PATIENCE,
    REQUEST,
    TerminalPlace,
    lasting_error,
    require_extra,
    socket_address,
    socket_errors,
)

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

OnGap = Callable[[int], None]
Rows = list[dict[str, Any]]


class AsyncTerminals:
    """Terminals of one sandbox. All methods need the extra `terminals`, and raise MicrovmError without it.

    They raise ApiError where the service refuses the connection, TerminalRefused where it refuses the terminal,
    ConnectionFailed where no connection comes about.
    """

    def __init__(self, url: str, token: str) -> None:
        self._address = socket_address(url, token)

    @asynccontextmanager
    async def open(
        self,
        command: str | None = None,
        *,
        args: Sequence[str] | None = None,
        cwd: str | None = None,
        columns: int = 120,
        rows: int = 30,
        on_gap: OnGap | None = None,
    ) -> AsyncIterator[AsyncTerminal]:
        """A new terminal. With `args` a program and its arguments, else `sh -c`; without `command` the user's shell.

        The block's end leaves it: what still runs goes on for ten minutes, in which `attach` returns to it.
        `on_gap` gets how many bytes of output were lost, where that happens.
        """
        given = {"command": command, "args": None if args is None else [*args], "cwd": cwd}
        program = {name: value for name, value in given.items() if value is not None}
        terminal = AsyncTerminal(self._address, TerminalPlace({"cols": columns, "rows": rows, **program}), on_gap)
        try:
            await terminal.connect()
            yield terminal
        finally:
            await terminal.leave()

    @asynccontextmanager
    async def attach(
        self, number: int, *, offset: int = 0, on_gap: OnGap | None = None
    ) -> AsyncIterator[AsyncTerminal]:
        """The terminal with this `id`, with its output from `offset` on, as far as that is kept (256 KiB)."""
        terminal = AsyncTerminal(self._address, TerminalPlace({}, number, offset), on_gap)
        try:
            await terminal.connect()
            yield terminal
        finally:
            await terminal.leave()

    async def list(self) -> Rows:
        """`terminalId`, `cols`, `rows`, `running`, `exitCode`, `signal`, and the offsets of what is kept."""
        socket = await _opened(self._address, FIRST_PATIENCE)
        try:
            await socket.send(json.dumps({"action": "terminal_list", "requestId": REQUEST}))
            while True:
                message = await socket.recv()
                found = {} if isinstance(message, bytes) else json.loads(message)
                if found.get("type") == "terminal_list":
                    terminals: Rows = found["terminals"]
                    return terminals
        except socket_errors() as error:
            raise lasting_error(error) or ConnectionFailed("The connection was lost.") from error
        finally:
            await socket.close()


class AsyncTerminal:
    """One terminal. Its output is read by one caller; others may send to it at the same time."""

    def __init__(self, address: str, place: TerminalPlace, on_gap: OnGap | None) -> None:
        self._address, self._place, self._on_gap = address, place, on_gap
        self._lock = Lock()
        self._socket: ClientConnection | None = None

    @property
    def id(self) -> int:
        """Return the id that `attach` takes."""
        return self._place.id or 0

    @property
    def received(self) -> int:
        """Bytes of output so far: the offset from which `attach` goes on."""
        return self._place.received

    @property
    def exit_code(self) -> int | None:
        """None until the program has ended, and where a signal ended it."""
        return self._place.exit_code

    @property
    def signal(self) -> str | None:
        """The name of the signal that ended the program."""
        return self._place.signal

    async def output(self) -> AsyncGenerator[bytes, None]:
        """Output as it comes, until the program ends. After a lost connection it goes on at the next byte.

        Raises Unauthorized where the token ends, Conflict where the sandbox stops or sleeps, TerminalRefused where the
        terminal is closed, ConnectionFailed where no connection comes about for ten minutes.
        """
        while not self._place.is_ended:
            socket = await self.connect()
            try:
                message = await socket.recv()
            except socket_errors() as error:
                await self._drop(socket, error)
                continue
            async with self._lock:
                if self._socket is not socket:
                    continue  # a call that sends has attached again, from before this message on
                skipped, part = self._place.skipped_by(message), self._place.output_in(message)
            if skipped and self._on_gap is not None:
                self._on_gap(skipped)
            if part:
                yield part
                await self._acknowledge(socket, len(part))

    async def send(self, data: bytes | str) -> None:
        """Type something. Raises ConnectionFailed where the connection is lost by it: a part may have arrived."""
        content = data.encode() if isinstance(data, str) else data
        for start in range(0, len(content), INPUT_PIECE):
            await self._post(bytes([self.id]) + content[start : start + INPUT_PIECE])

    async def resize(self, columns: int, rows: int) -> None:
        """Another size. Raises as `send` does."""
        await self._post(json.dumps({"a": "r", "id": self.id, "cols": columns, "rows": rows}))

    async def end(self) -> None:
        """End the program with a hang-up, and forget the terminal; `output` raises TerminalRefused then."""
        await self._post(json.dumps({"action": "terminal_close", "terminalId": self.id}))

    async def leave(self) -> None:
        """Close the connection. The program goes on."""
        async with self._lock:
            socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def connect(self) -> ClientConnection:
        """The connection, a new one where the last one was lost."""
        async with self._lock:
            if self._socket is None:
                self._socket = await self._begun()
            return self._socket

    async def _begun(self) -> ClientConnection:
        end = monotonic() + PATIENCE
        while True:
            is_new = self._place.id is None
            socket = await _opened(self._address, FIRST_PATIENCE if is_new else end - monotonic())
            try:
                await socket.send(self._place.first_message())
                while not self._place.is_begun_by(message := await socket.recv()):
                    pass
            except socket_errors() as error:
                if is_new:  # it may have been made
                    raise lasting_error(error) or ConnectionFailed("The connection was lost.") from error
                await sleep(FIRST_WAIT)
                continue
            skipped = self._place.skipped_by(message)
            if skipped and self._on_gap is not None:
                self._on_gap(skipped)
            return socket

    async def _post(self, message: bytes | str) -> None:
        socket = await self.connect()
        try:
            await socket.send(message)
        except socket_errors() as error:
            await self._drop(socket, error)
            raise ConnectionFailed("The connection was lost; what was sent may have arrived.") from error

    async def _acknowledge(self, socket: ClientConnection, size: int) -> None:
        message = self._place.acknowledgement(size)
        if message is None:
            return
        try:
            await socket.send(message)
        except socket_errors() as error:
            await self._drop(socket, error)

    async def _drop(self, socket: ClientConnection, error: Exception) -> None:
        """Raises what no new connection repairs."""
        async with self._lock:
            if self._socket is socket:
                self._socket = None
        if lasting := lasting_error(error):
            raise lasting from error


async def _opened(address: str, patience: float) -> ClientConnection:
    """Raises ApiError, ConnectionFailed where none comes about in `patience` seconds, MicrovmError (no extra)."""
    require_extra()
    from websockets.asyncio.client import connect

    wait, end = FIRST_WAIT, monotonic() + patience
    while True:
        try:
            return await connect(
                address, max_size=MOST_MESSAGE, compression=None, open_timeout=15, close_timeout=1, max_queue=64
            ).__aenter__()
        except socket_errors() as error:
            if lasting := lasting_error(error):
                raise lasting from None
            if monotonic() + wait > end:
                raise ConnectionFailed(f"No connection: {error}") from None
        await sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
