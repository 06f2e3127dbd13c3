"""A terminal of a sandbox by WebSocket: shown here, resized with the window, and back after a lost connection."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from microvm.cli.failures import CommandError, ExitCode
from microvm.cli.tty import RESET, EscapeReader, raw_mode, terminal_size
from microvm.errors import TerminalRefused
from microvm.sockets import (
    FIRST_WAIT,
    GOING_AWAY,
    INPUT_PIECE,
    LONGEST_WAIT,
    MOST_MESSAGE,
    PATIENCE,
    TOKEN_ENDED,
    TerminalPlace,
    lasting_error,
    socket_address,
)

MOST_WAITING = 64 << 10  # bytes of input that are kept while there is no connection
LEAVE_SECONDS = 1.0
ADDRESSES = "`ws list --sandboxes` shows the addresses."
UNREACHABLE = f"Check that the service runs. {ADDRESSES}"
REFUSED = {"terminal_not_found": "The terminal does not exist any more.", "terminal_ended": "The terminal has ended."}


class Left(Exception):
    """The user left the terminal, which goes on."""


class Ended(Exception):
    """The program of the terminal ended, with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Keyboard:
    """The descriptors of the terminal here."""

    source: int
    sink: int


def open_sandbox_terminal(
    url: str,
    token: str,
    keyboard: Keyboard,
    *,
    attach: int | None = None,
    program: str | None = None,
    say: Callable[[str], None],
) -> int:
    """Run a terminal until its program ends or the user leaves. The exit code of the program, 0 when it was left.

    Raises ApiError, CommandError. The terminal here is as it was before, whatever happens.
    """
    cols, rows = terminal_size(keyboard.sink)
    wanted = {"cols": cols, "rows": rows, **({"command": program} if program else {})}
    made = SandboxTerminal(socket_address(url, token), keyboard, TerminalPlace(wanted, attach))
    try:
        with raw_mode(keyboard.source):
            code = asyncio.run(made.run())
    except Left:
        if made.place.id is not None:
            say(f"Left the terminal, which goes on for ten minutes: ws terminal --attach {made.place.id}")
        return 0
    finally:
        _write_all(keyboard.sink, RESET)
    if code is None:
        raise CommandError(f"No connection for {PATIENCE:.0f} seconds.", UNREACHABLE, ExitCode.UNREACHABLE)
    return code


@dataclass
class SandboxTerminal:
    """`place` is what a new connection goes on with."""

    address: str
    keyboard: Keyboard
    place: TerminalPlace
    _waiting: bytearray = field(default_factory=bytearray)
    _escapes: EscapeReader = field(default_factory=EscapeReader)
    _socket: ClientConnection | None = None
    _is_shown: bool = False

    async def run(self) -> int | None:
        """The exit code; None where no connection came about any more. Raises Left, ApiError, CommandError."""
        async with self._keys() as left:
            showing = asyncio.ensure_future(self._show_output())
            try:
                either: list[asyncio.Future[Any]] = [showing, left]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if left.done():
                    await self._send_rest()
                    raise Left
                return await showing
            finally:
                showing.cancel()
                await asyncio.wait([showing])

    @asynccontextmanager
    async def _keys(self) -> AsyncIterator[asyncio.Future[None]]:
        """Reads keys and the size of the window; the future is done when the user leaves."""
        loop = asyncio.get_running_loop()
        left: asyncio.Future[None] = loop.create_future()

        def leave() -> None:
            if not left.done():
                left.set_result(None)

        def read() -> None:
            try:
                data = os.read(self.keyboard.source, INPUT_PIECE)
            except OSError:
                data = b""
            passed, leaves = self._escapes.passed_on(data)
            if len(self._waiting) + len(passed) <= MOST_WAITING:
                self._waiting += passed
                self._wake_sender()
            if leaves or not data or (self._socket is None and b"\x03" in passed):
                leave()  # Ctrl-C while there is no connection, too

        self._sending = asyncio.Event()
        loop.add_reader(self.keyboard.source, read)
        for name in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(name, leave)
        loop.add_signal_handler(signal.SIGWINCH, self._wake_sender)
        try:
            yield left
        finally:
            loop.remove_reader(self.keyboard.source)
            for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH):
                loop.remove_signal_handler(name)

    async def _send_rest(self) -> None:
        """Send what was typed before the user left, while there is a connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                while self._waiting and self._socket is not None:
                    await asyncio.sleep(0.01)

    def _wake_sender(self) -> None:
        self._sending.set()

    async def _show_output(self) -> int | None:
        loop = asyncio.get_running_loop()
        wait, deadline = FIRST_WAIT, loop.time() + PATIENCE
        while loop.time() < deadline:
            try:
                async with connect(self.address, max_size=MOST_MESSAGE, compression=None, open_timeout=15) as socket:
                    wait, deadline = FIRST_WAIT, loop.time() + PATIENCE
                    await self._use_connection(socket)
            except Ended as ended:
                return ended.code
            except InvalidURI:  # its text has the address, and that the token
                raise CommandError("The address of the sandbox is none of a WebSocket.", ADDRESSES) from None
            except InvalidStatus as refused:
                if lasting := lasting_error(refused):
                    raise lasting from refused
            except TerminalRefused as refused:
                text = REFUSED.get(refused.code, refused.message)
                raise CommandError(text, "Open a new one: ws terminal", ExitCode.CONFLICT) from refused
            except ConnectionClosed as closed:
                _raise_for_close(closed)
            except (OSError, InvalidHandshake, TimeoutError) as error:
                if not self._is_shown:
                    raise CommandError(f"No connection: {error}", UNREACHABLE, ExitCode.UNREACHABLE) from error
            self._show_note("reconnecting; Ctrl-C leaves")
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)
        return None

    async def _use_connection(self, socket: ClientConnection) -> None:
        """Until it ends. Raises ConnectionClosed, Ended, TerminalRefused."""
        sender = None
        try:
            await self._attach(socket)
            self._socket, self._is_shown = socket, True
            sender = asyncio.ensure_future(self._send_input(socket))
            async for message in socket:
                await self._take_message(socket, message)
            raise ConnectionClosed(socket.protocol.close_rcvd, socket.protocol.close_sent)
        finally:
            self._socket = None
            if sender is not None:
                sender.cancel()
                with suppress(asyncio.CancelledError, ConnectionClosed):
                    await sender

    async def _attach(self, socket: ClientConnection) -> None:
        await socket.send(self.place.first_message())
        while not self.place.is_begun_by(message := await socket.recv()):
            pass
        self._show_skipped(message)
        await self._send_size(socket, terminal_size(self.keyboard.sink))

    async def _take_message(self, socket: ClientConnection, message: str | bytes) -> None:
        self._show_skipped(message)
        part = self.place.output_in(message)
        if part:
            await asyncio.to_thread(_write_all, self.keyboard.sink, part)
            if (done := self.place.acknowledgement(len(part))) is not None:
                await socket.send(done)
        if self.place.is_ended:
            raise Ended(_exit_code(self.place))

    def _show_skipped(self, message: str | bytes) -> None:
        if skipped := self.place.skipped_by(message):
            self._show_note(f"{skipped} bytes of output are lost")

    async def _send_input(self, socket: ClientConnection) -> None:
        """Keys and sizes, as they come. What a connection took before it was lost may not have arrived."""
        size = terminal_size(self.keyboard.sink)
        while True:
            self._sending.clear()
            while self._waiting:
                piece = bytes(self._waiting[:INPUT_PIECE])
                await socket.send(bytes([self.place.id or 0]) + piece)
                del self._waiting[: len(piece)]
            if (now := terminal_size(self.keyboard.sink)) != size:
                size = now
                await self._send_size(socket, size)
            if not self._waiting:
                await self._sending.wait()

    async def _send_size(self, socket: ClientConnection, size: tuple[int, int]) -> None:
        await socket.send(json.dumps({"a": "r", "id": self.place.id, "cols": size[0], "rows": size[1]}))

    def _show_note(self, text: str) -> None:
        _write_all(self.keyboard.sink, f"\r\n[ws: {text}]\r\n".encode())


def _exit_code(place: TerminalPlace) -> int:
    if place.exit_code is not None:
        return place.exit_code
    return 128 + getattr(signal, place.signal, signal.SIGHUP) if place.signal else 0


def _raise_for_close(closed: ConnectionClosed) -> None:
    """Raises CommandError where the service will not take it again."""
    code, reason = (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (0, "")
    if code == TOKEN_ENDED:
        hint = "Set MICROVM_SANDBOX_TOKEN to the new one."
        raise CommandError(f"The token of the sandbox has ended: {reason}.", hint, ExitCode.UNAUTHORIZED)
    if code == GOING_AWAY:
        raise CommandError(f"The sandbox does not run any more: {reason}.", "`ws start` starts it.", ExitCode.CONFLICT)


def _write_all(sink: int, data: bytes) -> None:
    """A terminal that is stopped (Ctrl-S) is waited for; one that is gone takes nothing."""
    rest = memoryview(data)
    with suppress(OSError):
        while rest:
            rest = rest[os.write(sink, rest) :]
