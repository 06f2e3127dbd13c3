"""200 commands of 60 s in 4 guests at once: what else the streams process serves at that time, beside the same without.

Starts a Redis and a streams process (uvicorn as in production) and a PostgreSQL of its own, with guests of the
fake driver, whose commands run on this host. `GET /workspace/:id` is measured in the same process, though the api
serves it in production. Clients are this process, so one clock measures.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.guests [--commands 200] [--seconds 60]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from benchmarks.common import percentile
from benchmarks.streams import ROOT, Server, server

GUESTS = 4
CALLS = 60
PAUSE_SECONDS = 0.01
STREAM_SECONDS = 8
BAR = "at most 2"


def run_machines(of: Server) -> dict[str, Any]:
    """An account with running workspaces, and their machines: its `headers` and their `ids`."""
    script = [sys.executable, "-m", "benchmarks.rows", "--guests", str(GUESTS)]
    done = subprocess.run(script, env=of.env, cwd=ROOT, check=True, capture_output=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Measured:
    """Figures in ms of each kind of request."""

    def __init__(self, client: httpx.AsyncClient, workspace_id: str) -> None:
        self._client = client
        self._path = f"/workspace/{workspace_id}"
        self.figures: dict[str, list[float]] = {}

    async def run(self) -> None:
        """Everything at once, as a user's browser does it."""
        events = asyncio.ensure_future(self._intervals())
        for title, path in (("GET workspace", ""), ("listing", "/overlay"), ("log", "/logs?source=cmd")):
            self.figures[title] = [await self._timed(path) for _ in range(CALLS)]
        self.figures["stream, interval"] = await events

    async def _timed(self, path: str) -> float:
        await asyncio.sleep(PAUSE_SECONDS)
        begun = time.perf_counter()
        (await self._client.get(self._path + path)).raise_for_status()
        return (time.perf_counter() - begun) * 1000

    async def _intervals(self) -> list[float]:
        """The times between events of the stats stream, which has one a second."""
        found: list[float] = []
        async with self._client.stream("GET", f"{self._path}/stats/stream") as response:
            before = 0.0
            async for line in response.aiter_lines():
                if not line.startswith("event: message"):
                    continue
                now = time.perf_counter()
                if before:
                    found.append((now - before) * 1000)
                before = now
                if len(found) >= STREAM_SECONDS:
                    return found[1:]  # without the first, which may be an old event of the channel
        raise SystemExit("the stream has ended")


async def measure(of: Server, options: argparse.Namespace) -> None:
    machines = run_machines(of)
    async with open_client(of, machines, 10) as client, open_client(of, machines, options.commands) as other:
        await Measured(client, machines["ids"][0]).run()  # imports, the first connections
        idle = await measured(of, client, machines, "no command")
        running = [
            asyncio.ensure_future(execute(other, machines["ids"][number % GUESTS], options.seconds))
            for number in range(options.commands)
        ]
        while children(of) < options.commands:
            await asyncio.sleep(0.1)
        busy = await measured(of, client, machines, f"{options.commands} commands")
        if any(task.done() for task in running):
            raise SystemExit("a command ended before the measurement did: try more --seconds")
        codes = await asyncio.gather(*running)
    print(f"  {codes.count(200)} of {len(codes)} commands of {options.seconds} s ended well")
    for title, values in idle.figures.items():
        for share in (0.5, 0.99):
            before, now = percentile(values, share), percentile(busy.figures[title], share)
            ratio = f"ratio {now / before:.2f} ({BAR})"
            print(f"  {title:<17} p{share * 100:<3.0f} {before:7.1f} ms alone, {now:7.1f} ms with them: {ratio}")


async def measured(of: Server, client: httpx.AsyncClient, machines: dict[str, Any], title: str) -> Measured:
    found = Measured(client, machines["ids"][0])
    held = of.held()
    held["threads"] -= children(of)  # asyncio waits for each process in a thread; a guest's command has none
    await found.run()
    print(f"  {title}: the process holds {held}", flush=True)
    return found


def open_client(of: Server, machines: dict[str, Any], connections: int) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(of.socket), limits=httpx.Limits(max_connections=connections))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=machines["headers"], timeout=300)


async def execute(client: httpx.AsyncClient, workspace_id: str, seconds: int) -> int:
    """The status of the response."""
    body = {"cmd": ["sleep", str(seconds)], "timeout_seconds": seconds + 30}
    return (await client.post(f"/workspace/{workspace_id}/exec", json=body)).status_code


def children(of: Server) -> int:
    """How many processes the streams process runs: the commands of the fake driver's guests."""
    assert of.process is not None
    found = 0
    for task in Path(f"/proc/{of.process.pid}/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended
            found += len((task / "children").read_text().split())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commands", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    with server() as of:
        asyncio.run(measure(of, options))


if __name__ == "__main__":
    main()
