"""Many terminals on some machines at once, one client in ten never reads: who is disconnected, and why; whether every
line that was typed comes back once, in order; and how long that takes.

    STATE=./var .venv/bin/python -m benchmarks.many_terminals [--machines 4] [--terminals 200] [--seconds 120]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Ping, Request, TextMessage

from benchmarks.common import Instance, percentile
from benchmarks.sandboxes import Sandbox, running_sandbox

BAR = 0.01  # of the clients; and none without an explanation
EACH = 5  # terminals of a client
SILENT_SHARE = 10  # one client in as many never reads
EXPLAINED = (1012,)  # the platform was started again
MAX_SECONDS = 130  # a client that answers no ping is cut 140 s after its handshake
START_SECONDS = 240.0
LAST_SECONDS = 60.0
# No process for a line: the terminals are what is measured.
ANSWER = ["/bin/sh", "-c", "stty -echo; while read line; do echo $line of the terminal; done"]
PRINT = ["/bin/sh", "-c", "while :; do echo this is never read; done"]


class Client:
    """A WebSocket with EACH terminals. `silent`: nothing is read after the handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, silent: bool) -> None:
        self._reader, self._writer, self.silent = reader, writer, silent
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._parts: list[Any] = []
        self._typed_at: dict[int, float] = {}  # of lines that have not come back
        self._rest: dict[int, bytes] = {}
        self._next: dict[int, int] = {}
        self.latencies: list[float] = []  # seconds
        self.accepted, self.started = asyncio.Event(), asyncio.Event()
        self.end: str | None = None  # why the connection is over
        self.explained = True
        self.wrong = 0  # lines that were not the next one

    async def begin(self, sandbox: Sandbox) -> None:
        """Shake hands and create the terminals."""
        parts = urlsplit(sandbox.url)
        token = sandbox.headers["Authorization"].removeprefix("Bearer ")
        self._writer.write(self._connection.send(Request(host=parts.netloc, target=f"{parts.path}/ws?token={token}")))
        while not self.accepted.is_set() and self.end is None:
            await self.read_once()
        command = PRINT if self.silent else ANSWER
        for _ in range(EACH):
            self._send(json.dumps({"action": "terminal_create", "command": command[0], "args": command[1:]}))

    async def read_until_over(self) -> None:
        while self.end is None:
            await self.read_once()

    async def read_once(self) -> None:
        try:
            data = await self._reader.read(1 << 16)
        except OSError as exc:
            self._over(f"lost: {exc}", explained=False)
            return
        if not data:
            self._over("lost: the end of the connection without a close", explained=False)
            return
        self._connection.receive_data(data)
        for event in self._connection.events():
            self._take(event)

    def type_lines(self) -> None:
        """The next one, in each of the terminals whose last one has come back."""
        if self.end is None:
            for id in self._next.keys() - self._typed_at.keys():
                self._typed_at[id] = time.perf_counter()
                self._send(bytes((id,)) + b"%d\n" % self._next[id])

    def missing(self) -> int:
        """Lines that were typed and have not come back."""
        return len(self._typed_at)

    def close(self) -> None:
        self._writer.close()

    def _send(self, data: str | bytes) -> None:
        self._writer.write(self._connection.send(Message(data=data)))

    def _over(self, why: str, *, explained: bool) -> None:
        if self.end is None:
            self.end, self.explained = why, explained

    def _take(self, event: Any) -> None:
        if isinstance(event, AcceptConnection):
            self.accepted.set()
        elif isinstance(event, Ping):
            self._writer.write(self._connection.send(event.response()))
        elif isinstance(event, CloseConnection):
            self._over(f"closed: {event.code} {event.reason}", explained=event.code in EXPLAINED)
        elif isinstance(event, TextMessage | BytesMessage):
            self._parts.append(event.data)
            if event.message_finished:
                data = self._parts[0][:0].join(self._parts)
                self._parts.clear()
                self._take_message(json.loads(data)) if isinstance(data, str) else self._take_output(data)

    def _take_message(self, message: dict[str, Any]) -> None:
        if message["type"] == "terminal_created":
            self._next[message["terminalId"]] = 0
            if len(self._next) == EACH:
                self.started.set()
        elif message["type"] in ("terminal_error", "terminal_exited"):
            self._over(f"refused: {message}", explained=False)

    def _take_output(self, data: bytes) -> None:
        if self.silent:
            return
        id = data[0]
        *lines, self._rest[id] = (self._rest.get(id, b"") + data[1:]).split(b"\r\n")
        for line in lines:
            number = self._next[id]
            self._next[id] = number + 1
            at = self._typed_at.pop(id, None)
            if at is None or line != b"%d of the terminal" % number:
                self.wrong += 1
            else:
                self.latencies.append(time.perf_counter() - at)


async def opened(sandbox: Sandbox, stack: AsyncExitStack, *, silent: bool) -> Client:
    parts = urlsplit(sandbox.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    client = Client(reader, writer, silent=silent)
    stack.callback(client.close)
    await client.begin(sandbox)
    return client


async def run(sandboxes: Sequence[Sandbox], terminals: int, seconds: int) -> list[Client]:
    """Begin all, type for that long, and read what is still to come."""
    async with AsyncExitStack() as stack:
        numbers = range(terminals // EACH)
        clients, silent = [], []
        for number in numbers:
            client = await opened(sandboxes[number % len(sandboxes)], stack, silent=number % SILENT_SHARE == 0)
            clients.append(client)
            if client.silent:
                silent.append(asyncio.ensure_future(look_at_silent(client, min(seconds, MAX_SECONDS))))
        readers = [client for client in clients if not client.silent]
        for client in readers:
            stack.callback(asyncio.ensure_future(client.read_until_over()).cancel)
        async with asyncio.timeout(START_SECONDS):
            await asyncio.gather(*(client.started.wait() for client in readers))
        print(f"  {len(clients)} clients, {len(clients) - len(readers)} of which never read", flush=True)
        begun = time.perf_counter()
        while time.perf_counter() < begun + seconds:
            for client in readers:
                client.type_lines()
            await asyncio.sleep(1.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                while any(client.missing() for client in readers):
                    await asyncio.sleep(0.1)
        await asyncio.gather(*silent)
        return clients


async def look_at_silent(client: Client, seconds: int) -> None:
    """Whether it is still connected so long after its handshake: it reads what came, and then more than that."""
    await asyncio.sleep(seconds)
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_SECONDS):
            for _ in range(64):
                await client.read_once()


def shown(clients: Sequence[Client]) -> bool:
    """Print what was found; whether it is within the bars."""
    ended = [client for client in clients if client.end is not None]
    for client in ended:
        print(f"  {'never reads' if client.silent else 'reads'}: {client.end}")
    unexplained = sum(not client.explained for client in ended)
    share = len(ended) / len(clients)
    print(
        f"  {len(ended)} of {len(clients)} disconnected: {share:.1%} (less than {BAR:.0%}), {unexplained} unexplained"
    )
    latencies = [value * 1000 for client in clients for value in client.latencies]
    missing, wrong = (sum(values) for values in zip(*((each.missing(), each.wrong) for each in clients), strict=True))
    print(f"  {len(latencies)} lines came back, {missing} did not, {wrong} were not the next (none)")
    if latencies:
        shares = ", ".join(f"p{share:g} {percentile(latencies, share / 100):.0f}" for share in (50, 99))
        print(f"  a line and its answer: {shares}, at most {max(latencies):.0f} ms", flush=True)
    return share < BAR and not unexplained and not missing and not wrong


def measure(instance: Instance, options: argparse.Namespace) -> bool:
    with ExitStack() as stack:
        sandboxes = [stack.enter_context(running_sandbox(instance, options.memory)) for _ in range(options.machines)]
        return shown(asyncio.run(run(sandboxes, options.terminals, options.seconds)))


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--terminals", type=int, default=200, help=f"{EACH} of each client, 16 clients of a machine")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--memory", type=int, default=256, help="MiB of a machine")
    return parser.parse_args(arguments)


def main() -> None:
    if not measure(Instance.load(), parse_options()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
