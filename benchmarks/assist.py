"""Code assistance: what the platform adds to the model's own time, calls a second beside the same proxy without
counters and ledger, what waiting calls cost, and whether calls that hang delay anything else.

Starts a Redis, a PostgreSQL, a streams process and an api process of its own, and a model that answers at once.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.assist [--calls 200] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import socket as socketlib
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
from redis.asyncio import Redis

from assist.generation import answer_generate, first_question
from assist.routes import GENERATE
from assist.spent import Spent
from benchmarks.assist_model import NEVER, endpoint
from benchmarks.common import percentile
from benchmarks.streams import ROOT, Server, Writer, fan_out, server

BODY = {"prompt": "a function that adds two numbers", "language": "python"}
HANGING = {"prompt": NEVER}
AT_ONCE = 8
WAITING, HANGING_CALLS = 200, 100
ADDED_MS, SHARE, WAITING_MIB, P99 = 15, 0.3, 64, 1.3
Call = Callable[[], Awaitable[object]]


@contextmanager
def model() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.assist_model"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        yield process.stdout.readline().strip()
        process.stdin.close()


@contextmanager
def process(of: Server, name: str, *command: str, **env: str) -> Iterator[Path]:
    """One more process, by its socket."""
    socket = of.state / f"{name}.sock"
    started = subprocess.Popen([sys.executable, "-m", *command, "--uds", str(socket)], env={**of.env, **env}, cwd=ROOT)
    try:
        while not _accepts(socket):
            if started.poll() is not None:
                raise SystemExit(f"{name} did not start")
            time.sleep(0.05)
        yield socket
    finally:
        started.terminate()
        started.wait(30)


def _accepts(path: Path) -> bool:
    with socketlib.socket(socketlib.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def connect(socket: Path, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    transport = httpx.AsyncHTTPTransport(uds=str(socket), limits=limits)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, timeout=120)


async def seconds_each(call: Call, count: int) -> list[float]:
    """One after another."""
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        await call()
        found.append(time.perf_counter() - begun)
    return found


async def rate(call: Call, count: int) -> float:
    """Calls a second, AT_ONCE at a time."""
    begun = time.perf_counter()
    await asyncio.gather(*(seconds_each(call, count // AT_ONCE) for _ in range(AT_ONCE)))
    return count / (time.perf_counter() - begun)


def checked(client: httpx.AsyncClient, path: str, body: dict[str, str]) -> Call:
    async def call() -> None:
        (await client.post(path, json=body)).raise_for_status()

    return call


async def measure_added(ours: Call, url: str, count: int) -> None:
    async def bare() -> None:
        await answer_generate(endpoint(url), GENERATE, first_question(GENERATE, dict(BODY)), Spent())

    await seconds_each(ours, 20), await seconds_each(bare, 20)
    own, direct = await seconds_each(ours, count), await seconds_each(bare, count)
    added = [statistics.median(values) * 1000 for values in (own, direct)]
    print(f"  a call {added[0]:.1f} ms, the model alone {added[1]:.1f} ms, median of {count}")
    print(f"  added {added[0] - added[1]:.1f} ms (bar: below {ADDED_MS} ms)", flush=True)


async def measure_rate(ours: Call, baseline: Call, count: int, rounds: int) -> None:
    shares = []
    for _ in range(rounds):
        own, plain = await rate(ours, count), await rate(baseline, count)
        shares.append(own / plain)
        print(f"  {own:.0f} calls a second, the proxy alone {plain:.0f}, ratio {own / plain:.2f}", flush=True)
    print(f"  median ratio {statistics.median(shares):.2f} (bar: at least {SHARE})")


@asynccontextmanager
async def hanging(client: httpx.AsyncClient, number: int) -> AsyncIterator[None]:
    """So many calls that get no answer while this lasts."""
    tasks = [asyncio.ensure_future(client.post("/v1/blurs/generate", json=HANGING)) for _ in range(number)]
    await asyncio.sleep(6)
    if ended := [task for task in tasks if task.done()]:
        raise SystemExit(f"{len(ended)} calls ended: {ended[0].result().text}")
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(2)


async def measure_waiting(of: Server, client: httpx.AsyncClient) -> None:
    async with hanging(client, WAITING):
        pass  # so many requests at once start all threads of the process's pool, whether they wait or not
    before = of.held()
    async with hanging(client, WAITING):
        during = of.held()
    grown = during["MiB"] - before["MiB"]
    print(f"  {WAITING} calls that wait: {grown} MiB (bar: below {WAITING_MIB} MiB)")
    print(f"  threads before {before['threads']}, while they wait {during['threads']}", flush=True)


async def p99s(of: Server, api: httpx.AsyncClient, writer: Writer, count: int) -> tuple[float, float]:
    """Of `GET /workspace`, and of an open event stream, in ms."""

    async def read() -> None:
        (await api.get("/workspace")).raise_for_status()

    listed = await seconds_each(read, count)
    events = await fan_out(of, writer, 1, 20)
    return percentile(listed, 0.99) * 1000, percentile(events, 0.99)


async def measure_others(of: Server, client: httpx.AsyncClient, api: httpx.AsyncClient, count: int) -> None:
    async with Redis.from_url(of.env["PLATFORM_REDIS_URL"]) as redis:
        writer = Writer(of, redis)
        await writer.write()
        await p99s(of, api, writer, count)
        quiet = await p99s(of, api, writer, count)
        async with hanging(client, HANGING_CALLS):
            busy = await p99s(of, api, writer, count)
    for name, before, during in zip(("GET /workspace", "an event stream"), quiet, busy, strict=True):
        print(f"  p99 of {name}: {before:.1f} ms, beside {HANGING_CALLS} hanging calls {during:.1f} ms", end="")
        print(f", ratio {during / before:.2f} (bar: at most {P99})", flush=True)


async def measure(of: Server, url: str, sockets: tuple[Path, Path], options: argparse.Namespace) -> None:
    async with connect(of.socket, of.headers) as owner:
        key = (await owner.post("/api-keys", json={})).raise_for_status().json()["key"]
    headers = {"Authorization": f"Bearer {key}"}
    async with connect(of.socket, headers) as client, connect(sockets[0], headers) as plain:
        ours, baseline = checked(client, "/v1/blurs/generate", BODY), checked(plain, "/v1/blurs/generate", BODY)
        await measure_added(ours, url, options.calls)
        await measure_rate(ours, baseline, options.calls, options.rounds)
        await measure_waiting(of, client)
        async with connect(sockets[1], of.headers) as api:
            await measure_others(of, client, api, options.calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with model() as url:
        given = {
            "PLATFORM_ASSIST_URL": url,
            "PLATFORM_ASSIST_MODEL": "model",
            "PLATFORM_ASSIST_CONCURRENCY": str(AT_ONCE),
            "PLATFORM_ASSIST_QUEUE": "400",
            "PLATFORM_ASSIST_QUEUE_SECONDS": "120",
            "PLATFORM_ASSIST_CALLS_PER_MINUTE": "100000",
        }
        with (
            server(given) as of,
            process(of, "proxy", "config.serve_asgi", "benchmarks.assist_uncounted:application") as proxy,
            process(of, "api", "config.serve_wsgi", "--workers", "2", "--threads", "32", PLATFORM_ROLE="api") as api,
        ):
            asyncio.run(measure(of, url, (proxy, api), options))


if __name__ == "__main__":
    main()
