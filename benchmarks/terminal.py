"""A terminal of a sandbox by WebSocket beside a PTY by plain SSH to the same guest, in turns: from a key to its
echo, and the rate of `cat`.

STATE=./var .venv/bin/python -m benchmarks.terminal [--keys 200] [--size 64] [--rounds 3] [--printing 50]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncssh
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, CloseConnection, Message, Ping, Request, TextMessage

from benchmarks.common import Instance, percentile, show
from benchmarks.sandboxes import Sandbox, command_run, running_sandbox

ECHO_BAR = "of a plain PTY; p99 at most 2, and 3 with others that print"
RATE_BAR = "of a plain PTY's rate; at least 0.6"
FILE = "/bench.txt"
ECHO = ["sh", "-c", "stty raw -echo; echo ready; exec cat"]
PRINT = ["sh", "-c", "while sleep 0.1; do ls -l /usr/bin | head -n 40; done"]


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

    async def run(self) -> None:
        while data := await self._reader.read(1 << 18):
            self._connection.receive_data(data)
            for event in self._connection.events():
                self._take(event)

    def request(self, target: str, host: str) -> None:
        self._writer.write(self._connection.send(Request(host=host, target=target)))

    def send(self, data: str | bytes) -> None:
        self._writer.write(self._connection.send(Message(data=data)))

    async def create(self, command: list[str]) -> int:
        """Attached from its first byte. Its id."""
        self.send(json.dumps({"action": "terminal_create", "command": command[0], "args": command[1:]}))
        while (message := await self.messages.get())["type"] != "terminal_created":
            if message["type"] == "terminal_error":
                raise SystemExit(f"no terminal: {message}")
        return int(message["terminalId"])

    def _take(self, event: Any) -> None:
        if isinstance(event, Ping):
            self._writer.write(self._connection.send(event.response()))
        elif isinstance(event, CloseConnection):
            raise SystemExit(f"the socket was closed: {event.code} {event.reason}")
        elif isinstance(event, TextMessage | BytesMessage):
            self._parts.append(event.data)
            if event.message_finished:
                data = self._parts[0][:0].join(self._parts)
                self._parts.clear()
                if isinstance(data, str):
                    self._take_message(json.loads(data))
                elif self._keep and data[0] == self.newest:
                    self.output.put_nowait(bytes(data[1:]))

    def _take_message(self, message: dict[str, Any]) -> None:
        """Its output comes after it."""
        if message["type"] == "terminal_created":
            self.newest = message["terminalId"]
        self.messages.put_nowait(message)


@asynccontextmanager
async def opened(sandbox: Sandbox, *, keep: bool) -> AsyncIterator[Socket]:
    parts = urlsplit(sandbox.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    socket = Socket(reader, writer, keep=keep)
    token = sandbox.headers["Authorization"].removeprefix("Bearer ")
    socket.request(f"{parts.path}/ws?token={token}", parts.netloc)
    running = asyncio.ensure_future(socket.run())
    try:
        while (await socket.messages.get())["type"] != "connected":
            pass
        yield socket
    finally:
        running.cancel()
        writer.close()


class OurTerminal:
    """By WebSocket."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    async def start(self, command: list[str]) -> None:
        """Attached from its first byte."""
        self._id = await self._socket.create(command)

    def write(self, data: bytes) -> None:
        self._socket.send(bytes((self._id,)) + data)

    async def read(self) -> bytes:
        return await self._socket.output.get()

    async def end(self) -> None:
        self._socket.send(json.dumps({"action": "terminal_close", "terminalId": self._id}))
        while (await self._socket.messages.get())["type"] != "terminal_closed":
            pass
        self._socket.output = asyncio.Queue()


class PlainTerminal:
    """By SSH."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self._connection = connection

    async def start(self, command: list[str]) -> None:
        words = " ".join(f"'{word}'" for word in command)
        self._process = await self._connection.create_process(words, term_type="xterm", encoding=None)

    def write(self, data: bytes) -> None:
        self._process.stdin.write(data)

    async def read(self) -> bytes:
        found: bytes = await self._process.stdout.read(1 << 18)
        return found

    async def end(self) -> None:
        self._process.close()
        await self._process.wait_closed()


Terminal = OurTerminal | PlainTerminal


async def echoes(terminal: Terminal, keys: int) -> list[float]:
    """Milliseconds from each key to its echo."""
    await terminal.start(ECHO)
    seen = b""
    while b"ready" not in seen:
        seen += await terminal.read()
    found = []
    for _ in range(keys):
        begun = time.perf_counter()
        terminal.write(b"x")
        while b"x" not in await terminal.read():
            pass
        found.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(0.01)
    await terminal.end()
    return found


async def rate(terminal: Terminal, size: int) -> float:
    """MiB a second of `cat`."""
    begun = time.perf_counter()
    await terminal.start(["cat", FILE])
    count = 0
    while count < size:
        count += len(await terminal.read())
    seconds = time.perf_counter() - begun
    await terminal.end()
    return count / seconds / (1 << 20)


async def compare_echoes(ours: Terminal, theirs: Terminal, options: argparse.Namespace, title: str) -> None:
    found: list[list[float]] = [[], []]
    for _ in range(options.rounds):
        for place, terminal in enumerate((theirs, ours)):
            found[place] += await echoes(terminal, options.keys)
    print(title)
    p99 = [percentile(values, 0.99) for values in found]
    show("key to echo", found[1], found[0], unit="ms", bar="medians")
    print(f"  p99 {p99[1]:.2f} ms, plain {p99[0]:.2f} ms: {p99[1] / p99[0]:.2f} ({ECHO_BAR})", flush=True)


async def measure(sandbox: Sandbox, options: argparse.Namespace) -> None:
    size = options.size << 20
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(await sandbox.ssh())
        socket, printing = [await stack.enter_async_context(opened(sandbox, keep=keep)) for keep in (True, False)]
        ours, theirs = OurTerminal(socket), PlainTerminal(connection)
        await compare_echoes(ours, theirs, options, "alone")
        rates: list[list[float]] = [[], []]
        for _ in range(options.rounds):
            for place, terminal in enumerate((theirs, ours)):
                rates[place].append(await rate(terminal, size))
        print(f"cat of {options.size} MiB")
        show("rate", rates[1], rates[0], unit="MiB/s", bar=RATE_BAR)
        print(f"  means {statistics.mean(rates[1]):.2f} and {statistics.mean(rates[0]):.2f} MiB/s", flush=True)
        for _ in range(options.printing):
            await printing.create(PRINT)
        await compare_echoes(ours, theirs, options, f"with {options.printing} terminals that print")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--size", type=int, default=64, help="MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--printing", type=int, default=50)
    options = parser.parse_args()
    with running_sandbox(Instance.load(), 1024, disk_size_mb=1024) as sandbox:
        # Lines without an end of line are as long as a terminal is wide; a PTY would write two bytes for each end.
        command_run(sandbox.url, sandbox.headers, f"head -c {options.size << 20} /dev/zero | tr '\\0' x >{FILE}")
        asyncio.run(measure(sandbox, options))


if __name__ == "__main__":
    main()
