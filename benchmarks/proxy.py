"""A server on a guest's loopback by the runtime's proxy beside the same by `ssh -L`, in turns: requests a second, bytes
a second each way, and from a message of a WebSocket to its echo.

    STATE=./var .venv/bin/python -m benchmarks.proxy [--turns 3] [--requests 400] [--megabytes 64] [--messages 300]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from websockets.asyncio.client import connect

from benchmarks import proxied_server
from benchmarks.common import Instance, percentile, show
from benchmarks.runtime import Runtime, running_runtime
from benchmarks.streams import ROOT
from tests.free_ports import free_port

PORT = 8000
CLIENTS = 8
STARTED_SECONDS = 60


@dataclass(frozen=True)
class Way:
    """One way to the server: its address and what a request carries."""

    url: str
    headers: dict[str, str]


@contextmanager
def served_ways(instance: Instance, runtime: Runtime) -> Iterator[tuple[Way, Way]]:
    """The proxy and `ssh -L`, to a server that runs."""
    program = Path(proxied_server.__file__).read_text()
    with httpx.Client(base_url=runtime.url, headers=runtime.headers, timeout=60, trust_env=False) as client:
        client.post("/files/write", json={"path": "/server.py", "content": program}).raise_for_status()
        client.post("/exec", json={"cmd": f"python3 /server.py {PORT} >/dev/null 2>&1 &"}).raise_for_status()
    port = free_port()
    with forwarding(instance, runtime, port):
        ways = Way(f"{runtime.url}/proxy/{PORT}", runtime.headers), Way(f"http://127.0.0.1:{port}", {})
        for way in ways:
            await_server(way)
        yield ways


@contextmanager
def forwarding(instance: Instance, runtime: Runtime, port: int) -> Iterator[None]:
    """`ssh -L` by the command line, which authorizes a key of its own."""
    values = {
        "PYTHONPATH": str(ROOT / "clients/python/src"),
        "MICROVM_URL": instance.base_url,
        "MICROVM_CLIENT_ID": instance.headers["X-Client-ID"],
        "MICROVM_CLIENT_SECRET": instance.headers["X-Client-Secret"],
    }
    program = [sys.executable, "-c", "from microvm.cli.entry import main; main()"]
    words = [*program, "ssh", "-L", f"{port}:127.0.0.1:{PORT}", runtime.id, "sleep", "3600"]
    process = subprocess.Popen(words, env={**os.environ, **values}, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def await_server(way: Way) -> None:
    deadline = time.monotonic() + STARTED_SECONDS
    while True:
        try:
            if httpx.get(f"{way.url}/2", headers=way.headers, timeout=10, trust_env=False).content == b"xx":
                return
        except httpx.HTTPError:
            pass
        if time.monotonic() > deadline:
            raise SystemExit(f"no answer by {way.url}")
        time.sleep(0.3)


async def request_rate(way: Way, count: int) -> float:
    """Requests a second, by clients that ask one after another."""
    left = iter(range(count))

    async def ask(client: httpx.AsyncClient) -> None:
        for _ in left:
            answer = await client.get(f"{way.url}/1024")
            if len(answer.content) != 1024:
                raise SystemExit(f"{answer.status_code}: {answer.text[:200]}")

    async with httpx.AsyncClient(headers=way.headers, timeout=60, trust_env=False) as client:
        await asyncio.gather(*(ask(client) for _ in range(CLIENTS)))  # connections
        left = iter(range(count))
        begun = time.perf_counter()
        await asyncio.gather(*(ask(client) for _ in range(CLIENTS)))
        return count / (time.perf_counter() - begun)


async def download_rate(way: Way, size: int) -> float:
    """MiB a second."""
    begun, found = time.perf_counter(), 0
    async with (
        httpx.AsyncClient(headers=way.headers, timeout=300, trust_env=False) as client,
        client.stream("GET", f"{way.url}/{size}") as answer,
    ):
        async for piece in answer.aiter_raw():
            found += len(piece)
    if found != size:
        raise SystemExit(f"{found} of {size} bytes came")
    return size / (1 << 20) / (time.perf_counter() - begun)


async def upload_rate(way: Way, size: int) -> float:
    """MiB a second."""
    begun = time.perf_counter()
    async with httpx.AsyncClient(headers=way.headers, timeout=300, trust_env=False) as client:
        answer = await client.put(f"{way.url}/", content=bytes(size))
    if answer.text != str(size):
        raise SystemExit(f"{answer.status_code}: {answer.text[:200]}")
    return size / (1 << 20) / (time.perf_counter() - begun)


async def echoes(way: Way, count: int) -> list[float]:
    """Milliseconds from each message to its echo."""
    found = []
    url = way.url.replace("http://", "ws://", 1)
    async with connect(f"{url}/echo", additional_headers=way.headers, proxy=None, compression=None) as socket:
        for number in range(count + 5):
            begun = time.perf_counter()
            await socket.send(b"x" * 64)
            if await socket.recv() != b"x" * 64:
                raise SystemExit("another message came")
            if number >= 5:
                found.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(0.01)
    return found


async def measure(ways: tuple[Way, Way], options: argparse.Namespace) -> None:
    size = options.megabytes << 20
    for title, unit, bar, work in (
        ("requests", "a second", "at least 0.6", lambda way: request_rate(way, options.requests)),
        ("download", "MiB/s", "at least 0.7", lambda way: download_rate(way, size)),
        ("upload", "MiB/s", "at least 0.7", lambda way: upload_rate(way, size)),
    ):
        found: tuple[list[float], list[float]] = ([], [])
        for _ in range(options.turns):
            for values, way in zip(found, ways, strict=True):
                values.append(await work(way))
        show(title, *found, unit=unit, bar=f"of ssh -L's; {bar}")
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(options.turns):
        for values, way in zip(times, ways, strict=True):
            values.extend(await echoes(way, options.messages))
    for share in (0.5, 0.99):
        one, other = (percentile(values, share) for values in times)
        bar = "at most 2" if share > 0.5 else "no bar"
        print(f"echo p{share * 100:.0f}: {one:.2f} ms, ssh -L {other:.2f} ms: ratio {one / other:.2f} ({bar})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--messages", type=int, default=300)
    options = parser.parse_args()
    instance = Instance.load()
    with running_runtime(instance) as runtime, served_ways(instance, runtime) as ways:
        asyncio.run(measure(ways, options))


if __name__ == "__main__":
    main()
