"""500 clients of one event stream on one streams process beside one client, 10,000 forced disconnects, deaf clients.

Starts a Redis and a streams process (uvicorn as in production) and a PostgreSQL of its own, and writes the
console's channel of one workspace as vmhost does. Clients and writer are this process, so one clock measures.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.streams [--clients 500] [--events 20] [--disconnects 10000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from redis.asyncio import Redis

from benchmarks.common import percentile
from benchmarks.databases import new_database
from common.sse.replay import Channel, ReplayBuffer

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
# The prefix of all names in Redis, the same in both processes.
INSTANCE = os.environ["PLATFORM_INSTANCE"] = "000000"

ROOT = Path(__file__).resolve().parent.parent
EVERY_SECONDS = 0.5
BAR_MS = 200
CHURNERS = 100  # clients that are cut off, at any one time
CHURN_EVERY_SECONDS = 0.1
DEAF, DEAF_EVENTS, DEAF_BYTES = 100, 2000, 8192


@dataclass
class Server:
    """The measured streams process."""

    state: Path
    env: dict[str, str]
    headers: dict[str, str] = field(default_factory=dict)
    workspace: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.state / "streams.sock"

    def held(self) -> dict[str, int]:
        """Threads, open files, memory in MiB."""
        assert self.process is not None
        proc = Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
        return {
            "threads": int(status["Threads"]),
            "files": len(list((proc / "fd").iterdir())),
            "MiB": int(status["VmRSS"].split()[0]) // 1024,
        }


@contextmanager
def server(given: Mapping[str, str] | None = None) -> Iterator[Server]:
    """`given`: further settings."""
    state = Path(tempfile.mkdtemp(prefix="mvmb-"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PLATFORM_")}
    env = {
        **kept,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PLATFORM_STATE": str(state),
        "PLATFORM_DATABASE_URL": new_database(),
        "PLATFORM_REDIS_URL": f"unix://{state}/redis.sock",
        "PLATFORM_SECRET_KEY": "a-key-for-the-benchmark-only-0123456789",
        "PLATFORM_INSTANCE": INSTANCE,
        "PLATFORM_VM_BACKEND": "fake",
        "PLATFORM_LOG_LEVEL": "ERROR",
        **(given or {}),
    }
    made = Server(state, env)
    redis = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", f"{state}/redis.sock", "--save", "", "--dir", str(state)],
        stdout=subprocess.DEVNULL,
    )
    try:
        rows = subprocess.run(
            [sys.executable, "-m", "benchmarks.rows", "1"], env=env, cwd=ROOT, check=True, capture_output=True
        )
        many = json.loads(rows.stdout)["many"]
        made.headers, made.workspace = many["headers"], many["id"]
        made.process = subprocess.Popen(
            [sys.executable, "-m", "config.serve_asgi", "--uds", str(made.socket)], env=env, cwd=ROOT
        )
        while not made.socket.exists():
            time.sleep(0.05)
        yield made
    finally:
        if made.process is not None:
            made.process.terminate()
            made.process.wait(30)
        redis.kill()
        redis.wait()
        shutil.rmtree(state, ignore_errors=True)


@dataclass
class Event:
    number: int
    sent: float
    received: float
    id: str
    kind: str


@asynccontextmanager
async def client(of: Server, last: str = "", *, limit: int = 1 << 20) -> AsyncIterator[AsyncIterator[Event]]:
    """One client, which takes `limit` bytes unread; leaving it resets the connection."""
    reader, writer = await asyncio.open_unix_connection(str(of.socket), limit=limit)
    sent = {"Host": "localhost", **of.headers, **({"Last-Event-ID": last} if last else {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    path = f"/workspace/{of.workspace}/logs/stream/boot?tail_lines=0"
    writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
    status = await reader.readline()
    if b" 200 " not in status:
        raise SystemExit(f"refused: {status!r} {await reader.read(2000)!r}")
    try:
        yield events(reader)
    finally:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


async def events(reader: asyncio.StreamReader) -> AsyncIterator[Event]:
    found: dict[str, str] = {}
    while line := (await reader.readline()).decode().rstrip("\r\n"):
        if line:
            break
    async for raw in reader:
        name, _, value = raw.decode().rstrip("\r\n").partition(": ")
        if name in ("event", "id", "data"):
            found[name] = value
        if name == "data":
            data = json.loads(value)
            yield Event(data.get("n", 0), data.get("at", 0.0), time.time(), found["id"], found["event"])


class Writer:
    """Writes the console's channel, as vmhost does."""

    def __init__(self, of: Server, redis: Redis) -> None:
        self._replay = ReplayBuffer(redis)
        self._channel = Channel(f"log:{of.workspace}:boot")
        self._position = ""
        self.number = 0

    async def write(self, padding: int = 0) -> None:
        self.number += 1
        text = json.dumps({"n": self.number, "at": time.time(), "line": f"line {self.number}" + "x" * padding})
        position = str(self.number)
        await self._replay.append(self._channel, [("message", text)], expected=self._position, position=position)
        self._position = position


async def fan_out(of: Server, writer: Writer, clients: int, count: int) -> list[float]:
    """Latencies in ms of `count` events to that many clients. Exits where one is missing."""
    ready = asyncio.Semaphore(0)
    wanted = range(writer.number + 1, writer.number + 1 + count)
    listening = []
    for _ in range(clients):
        listening.append(asyncio.ensure_future(listen(of, wanted, ready)))
        if len(listening) % 50 == 0:
            await asyncio.sleep(0.2)
    for _ in range(clients):
        await ready.acquire()
    await asyncio.sleep(2)
    print(f"  open streams: {clients}; the process holds {of.held()}", flush=True)
    for _ in range(count):
        await writer.write()
        await asyncio.sleep(EVERY_SECONDS)
    done = await asyncio.wait_for(asyncio.gather(*listening), 60)
    return [latency for one in done for latency in one]


async def listen(of: Server, wanted: range, ready: asyncio.Semaphore) -> list[float]:
    """Latencies of the wanted events; each must arrive once and in order."""
    got: list[Event] = []
    async with client(of) as stream:
        ready.release()
        async for event in stream:
            if event.number >= wanted.start:
                got.append(event)
            if event.number == wanted[-1]:
                break
    if [event.number for event in got] != list(wanted):
        raise SystemExit(f"a client got {[event.number for event in got]}")
    return [(event.received - event.sent) * 1000 for event in got]


async def churn(of: Server, writer: Writer, total: int) -> None:
    """Clients that disconnect repeatedly and reconnect with their last id; exits if an event is lost or doubled."""
    left = total
    over = asyncio.Event()

    async def write() -> None:
        while not over.is_set():
            await writer.write()
            await asyncio.sleep(CHURN_EVERY_SECONDS)

    async def listen() -> int:
        nonlocal left
        last, place = "", 0
        while left > 0:
            left -= 1
            until = random.randint(1, 20)
            async with client(of, last) as stream:
                async for event in stream:
                    if event.kind != "message" or (place and event.number != place + 1):
                        raise SystemExit(f"after {place}: {event}")
                    place, last = event.number, event.id
                    until -= 1
                    if not until:
                        break
        return place

    writing = asyncio.ensure_future(write())
    begun = time.monotonic()
    await asyncio.gather(*(listen() for _ in range(CHURNERS)))
    over.set()
    await writing
    seconds = time.monotonic() - begun
    print(f"  {total} disconnects in {seconds:.0f} s ({total / seconds:.0f} a second): none lost, none doubled")
    await asyncio.sleep(3)
    print(f"  afterwards the process holds {of.held()}")


async def deaf(of: Server, writer: Writer) -> None:
    """Clients that do not read while far more is written than the server may buffer for them."""
    before = of.held()["MiB"]
    async with AsyncExitStack() as stack:
        for _ in range(DEAF):
            await stack.enter_async_context(client(of, limit=1024))
        for _ in range(DEAF_EVENTS):
            await writer.write(padding=DEAF_BYTES)
        await asyncio.sleep(2)
        after = of.held()["MiB"]
    written = DEAF * DEAF_EVENTS * DEAF_BYTES >> 20
    print(f"  {DEAF} clients that do not read, {written} MiB for them: the process grew by {after - before} MiB")


async def measure(of: Server, options: argparse.Namespace) -> None:
    async with Redis.from_url(of.env["PLATFORM_REDIS_URL"]) as redis:
        writer = Writer(of, redis)
        await writer.write()
        print(f"  no stream yet: the process holds {of.held()}")
        one = await fan_out(of, writer, 1, options.events)
        many = await fan_out(of, writer, options.clients, options.events)
        for title, values in (("one client", one), (f"{options.clients} clients", many)):
            shares = "   ".join(f"p{share} {percentile(values, share / 100):7.1f} ms" for share in (50, 99))
            print(f"  {title:<14} {shares}   {len(values)} events, all delivered")
        worst = percentile(many, 0.99)
        print(f"  ratio of p99 {worst / percentile(one, 0.99):.1f}; p99 {worst:.0f} ms (bar: below {BAR_MS} ms)")
        await churn(of, writer, options.disconnects)
        await deaf(of, writer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--events", type=int, default=20)
    parser.add_argument("--disconnects", type=int, default=10_000)
    options = parser.parse_args()
    with server() as of:
        asyncio.run(measure(of, options))


if __name__ == "__main__":
    main()
