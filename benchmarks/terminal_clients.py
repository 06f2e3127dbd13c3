"""Two kinds of terminals on the guest of a sandbox: by its WebSocket, and as a PTY by plain SSH."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncssh
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, CloseConnection, Message, Ping, RejectConnection, Request, TextMessage

from benchmarks.sandboxes import Sandbox


class Socket:
    """One WebSocket with terminals; with `keep` the output of the newest goes to `output`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, keep: bool) -> None:
        self._reader, self._writer = reader, writer
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._parts: list[Any] = []
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.output: asyncio.Queue[bytes] = asyncio.Queue()
        self.newest = 0
        self._keep = keep
        self.running: asyncio.Task[None] | None = None

    def stop_reading(self) -> None:
        """For the rest of the connection."""
        if self.running is not None:
            self.running.cancel()

    async def run(self) -> None:
        """Read until the socket ends, which nothing here expects: raises ConnectionError."""
        while data := await self._reader.read(1 << 18):
            self._connection.receive_data(data)
            for event in self._connection.events():
                self._take_event(event)
        raise ConnectionError("the socket ended")

    def request(self, target: str, host: str) -> None:
        self._writer.write(self._connection.send(Request(host=host, target=target)))

    def send(self, data: str | bytes) -> None:
        self._writer.write(self._connection.send(Message(data=data)))

    async def ask(self, wanted: str, **message: Any) -> dict[str, Any]:
        """Send a message and return the first answer of that type. Raises SystemExit at an error."""
        self.send(json.dumps(message))
        while (answer := await self.messages.get())["type"] != wanted:
            if answer["type"] == "terminal_error":
                raise SystemExit(f"{message}: {answer}")
        return answer

    async def create(self, command: list[str]) -> int:
        """A terminal, attached from its first byte; without a command the user's shell. Returns its id."""
        program = {"command": command[0], "args": command[1:]} if command else {}
        return int((await self.ask("terminal_created", action="terminal_create", **program))["terminalId"])

    def _take_event(self, event: Any) -> None:
        if isinstance(event, Ping):
            self._writer.write(self._connection.send(event.response()))
        elif isinstance(event, CloseConnection):
            raise ConnectionError(f"the socket was closed: {event.code} {event.reason}")
        elif isinstance(event, RejectConnection):
            raise ConnectionError(f"the socket was refused: {event.status_code}")
        elif isinstance(event, TextMessage | BytesMessage):
            self._parts.append(event.data)
            if event.message_finished:
                data = self._parts[0][:0].join(self._parts)
                self._parts.clear()
                self._take_text(json.loads(data)) if isinstance(data, str) else self._take_output(data)

    def _take_text(self, message: dict[str, Any]) -> None:
        if message["type"] == "terminal_created":
            self.newest = message["terminalId"]  # its output comes after it
        self.messages.put_nowait(message)

    def _take_output(self, data: bytes) -> None:
        if self._keep and data[0] == self.newest:
            self.output.put_nowait(bytes(data[1:]))


@asynccontextmanager
async def opened(sandbox: Sandbox, *, keep: bool) -> AsyncIterator[Socket]:
    """A connected socket, which is read within the context; its unexpected end ends what is done in it."""
    parts = urlsplit(sandbox.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    socket = Socket(reader, writer, keep=keep)
    token = sandbox.headers["Authorization"].removeprefix("Bearer ")
    socket.request(f"{parts.path}/ws?token={token}", parts.netloc)
    try:
        async with asyncio.TaskGroup() as group:
            running = socket.running = group.create_task(socket.run())
            while (await socket.messages.get())["type"] != "connected":
                pass
            yield socket
            running.cancel()
    finally:
        writer.close()


class OurTerminal:
    """By WebSocket."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._id = 0

    async def connect(self) -> None:
        """The socket is open already."""

    async def start(self, command: list[str]) -> None:
        self._socket.output = asyncio.Queue()
        self._id = await self._socket.create(command)

    def write(self, data: bytes) -> None:
        self._socket.send(bytes((self._id,)) + data)

    async def read(self) -> bytes:
        return await self._socket.output.get()

    async def end(self) -> None:
        await self._socket.ask("terminal_closed", action="terminal_close", terminalId=self._id)


class PlainTerminal:
    """By SSH, each on a connection of its own: dropbear answers the close of a channel only once its program has ended,
    and does not hang the program up before the connection ends.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._connection: asyncssh.SSHClientConnection | None = None

    async def connect(self) -> None:
        self._connection = await self._sandbox.ssh()

    async def start(self, command: list[str]) -> None:
        assert self._connection is not None  # connected before
        words = " ".join(f"'{word}'" for word in command)
        self._process = await self._connection.create_process(words, term_type="xterm", encoding=None)

    def write(self, data: bytes) -> None:
        self._process.stdin.write(data)

    async def read(self) -> bytes:
        """Raises SystemExit at the end of the output."""
        found: bytes = await self._process.stdout.read(1 << 18)
        if not found:
            raise SystemExit(f"the plain terminal's program ended: {self._process.exit_status}")
        return found

    async def end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            await self._connection.wait_closed()
            self._connection = None


Terminal = OurTerminal | PlainTerminal
