"""1,000 calls of the Python client beside the same calls with bare httpx: same server, same run, in turns.

Time is the clock's, CPU that of this process alone. Bar: both at most 1.5 times those of httpx, for the synchronous and
for the asynchronous client. Starts a server (granian as in production) and a PostgreSQL of its own.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.python_client [--calls 1000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from benchmarks.api import ROOT, URL, environment, server
from benchmarks.databases import use_own_server

sys.path.insert(0, str(ROOT / "clients/python/src"))

from microvm import AsyncMicrovm, Microvm

BAR = 1.5
TURN = 25  # calls
Headers = dict[str, str]
Calls = Callable[[int], None]


def bare_calls(workspace: str, headers: Headers) -> Calls:
    client = httpx.Client(base_url=URL, headers=headers)

    def run(count: int) -> None:
        for _ in range(count):
            response = client.get(f"/workspace/{workspace}")
            response.raise_for_status()
            assert response.json()["workspace"]["id"] == workspace

    return run


def client_calls(workspace: str, headers: Headers) -> Calls:
    client = Microvm(URL, client_id=headers["X-Client-ID"], client_secret=headers["X-Client-Secret"])

    def run(count: int) -> None:
        for _ in range(count):
            assert client.workspaces.get(workspace)["id"] == workspace

    return run


def bare_coroutines(workspace: str, headers: Headers) -> Calls:
    runner = asyncio.Runner()
    client = httpx.AsyncClient(base_url=URL, headers=headers)

    async def calls(count: int) -> None:
        for _ in range(count):
            response = await client.get(f"/workspace/{workspace}")
            response.raise_for_status()
            assert response.json()["workspace"]["id"] == workspace

    return lambda count: runner.run(calls(count))


def client_coroutines(workspace: str, headers: Headers) -> Calls:
    runner = asyncio.Runner()
    client = AsyncMicrovm(URL, client_id=headers["X-Client-ID"], client_secret=headers["X-Client-Secret"])

    async def calls(count: int) -> None:
        for _ in range(count):
            assert (await client.workspaces.get(workspace))["id"] == workspace

    return lambda count: runner.run(calls(count))


def measured(run: Calls, count: int) -> tuple[float, float]:
    """Seconds by the clock, and of this process's CPU."""
    clock, cpu = time.perf_counter(), time.process_time()
    run(count)
    return time.perf_counter() - clock, time.process_time() - cpu


def compare(name: str, ours: Calls, bare: Calls, calls: int, rounds: int) -> bool:
    """In short turns, so that both meet the same load of the machine. Medians of the turns are compared."""
    sides = {"client": ours, "httpx": bare}
    found: dict[str, list[tuple[float, float]]] = {title: [] for title in sides}
    for run in sides.values():
        run(TURN)
    for turn in range(rounds * calls // TURN):
        for title in sorted(sides, reverse=bool(turn % 2)):
            found[title].append(measured(sides[title], TURN))
    medians = {
        title: [statistics.median(row[kind] for row in rows) * calls / TURN for kind in (0, 1)]
        for title, rows in found.items()
    }
    for title, (clock, cpu) in medians.items():
        print(f"  {name:<13} {title:<7} {calls} calls: {clock:6.3f} s, CPU {cpu:6.3f} s, by the median of its turns")
    ratios = [one / other for one, other in zip(medians["client"], medians["httpx"], strict=True)]
    print(f"  {name:<13} ratio: time {ratios[0]:.2f}, CPU {ratios[1]:.2f} (bar: at most {BAR})")
    return max(ratios) <= BAR


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    state = Path(tempfile.mkdtemp(prefix="mvmb-"))
    use_own_server()
    env = environment(state)
    try:
        rows = [sys.executable, "-m", "benchmarks.rows", "100"]
        made = json.loads(subprocess.run(rows, env=env, cwd=ROOT, check=True, capture_output=True).stdout)["few"]
        place = (made["id"], made["headers"])
        with server(env):
            kept = [
                compare("synchronous", client_calls(*place), bare_calls(*place), options.calls, options.rounds),
                compare(
                    "asynchronous", client_coroutines(*place), bare_coroutines(*place), options.calls, options.rounds
                ),
            ]
    finally:
        shutil.rmtree(state, ignore_errors=True)
    if not all(kept):
        raise SystemExit("The client is slower than the bar.")


if __name__ == "__main__":
    main()
