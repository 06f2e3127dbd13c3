"""New files in 100 folders of a sandbox, by a watch over a WebSocket beside a program in the same guest that only reads
inotify, over plain SSH: the same changes, each one's milliseconds from its sending to a guest's shell to its report.

    STATE=./var .venv/bin/python -m benchmarks.watch [--count 100000] [--rate 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import tempfile
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.common import Instance, percentile
from benchmarks.sandboxes import Sandbox, command_run, running_sandbox
from benchmarks.steps import Progress, run_steps, step
from tests.sandboxes.sockets.client import WebSocketClient

FOLDERS = 100
FOLDER = "/bench"
PROGRAM = "/dev/shm/bare-inotify"  # of the guest
BAR_MS = 300.0
LAST_SECONDS = 30.0
START_SECONDS = 120.0
MAX_AHEAD = 50  # names that were sent and not reported by the baseline
SLOWEST_RATE = 50  # changes a second; below it the guest is too slow to say anything
Times = dict[int, float]


def compiled() -> bytes:
    """The baseline, for any guest."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "program"
        source = Path(__file__).with_name("bare_inotify.c")
        subprocess.run(["musl-gcc", "-static", "-O2", "-s", "-o", str(target), str(source)], check=True)
        return target.read_bytes()


class Watcher(threading.Thread):
    """Times of the messages of a watch, in a thread of its own."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(daemon=True)
        url = urlsplit(sandbox.url)
        token = sandbox.headers["Authorization"].removeprefix("Bearer ")
        host, port = str(url.hostname), int(url.port or 80)
        self._client = WebSocketClient((host, port), f"{url.path}/ws?token={token}", host=f"{host}:{port}")
        self._client.ask("watch_started", type="watch", path=FOLDER)
        self._client.socket.settimeout(None)
        self.times: Times = {}
        self.overflows = 0

    def run(self) -> None:
        while True:
            self._client.receive()
            now = time.perf_counter()
            while self._client.messages:
                message = self._client.messages.popleft()
                if message["type"] == "watch_add":
                    self.times.setdefault(int(message["path"].rpartition("/")[2]), now)
                elif message["type"] in ("watch_overflow", "watch_error"):
                    self.overflows += 1


async def read_bare(process: Any, times: Times) -> None:
    async for line in process.stdout:
        if line.strip().isdigit():
            times[int(line)] = time.perf_counter()


async def change(writer: Any, count: int, rate: int, progress: Progress, made: Times) -> Times:
    """Send the names of new files to a shell, at an even rate. Where the guest is slower, at its own: names do not wait
    in its shell. `made`: those that the baseline has reported.
    """
    sent: Times = {}
    begun = time.perf_counter()
    while len(sent) < count:
        due = min(count, int((time.perf_counter() - begun) * rate) + 1, len(made) + MAX_AHEAD)
        for number in range(len(sent), due):
            sent[number] = time.perf_counter()
            writer.stdin.write(f"{FOLDER}/{number % FOLDERS}/{number}\n")
        await writer.stdin.drain()
        progress.done = len(sent)
        await asyncio.sleep(0.005)
    print(f"  {len(sent) / (time.perf_counter() - begun):.0f} new files a second")
    return sent


async def wait_all(count: int, progress: Progress, *received: Times) -> None:
    """Until all were reported, or nothing was for some time."""
    until, before = time.perf_counter() + LAST_SECONDS, -1
    while any(len(times) < count for times in received) and time.perf_counter() < until:
        if (now := sum(map(len, received))) != before:
            until, before, progress.done = time.perf_counter() + LAST_SECONDS, now, now
        await asyncio.sleep(0.05)


def show(name: str, sent: Times, received: Times) -> float:
    """Print milliseconds; returns their 99th percentile."""
    values = [(received[number] - at) * 1000 for number, at in sent.items() if number in received]
    if not values:
        raise SystemExit(f"{name}: nothing was reported")
    shares = ", ".join(f"p{share:g} {percentile(values, share / 100):.1f}" for share in (50, 90, 99, 99.9))
    print(f"  {name:<14} {len(values)} of {len(sent)} reported; ms: {shares}, at most {max(values):.1f}")
    return percentile(values, 0.99)


async def measure(sandbox: Sandbox, options: argparse.Namespace) -> bool:
    async with AsyncExitStack() as stack:
        async with step("the two watches", START_SECONDS):
            placing, reading, writing = [await stack.enter_async_context(await sandbox.ssh()) for _ in range(3)]
            await placing.run(f"cat >{PROGRAM} && chmod 700 {PROGRAM}", input=compiled(), encoding=None, check=True)
            bare = await reading.create_process(f"exec {PROGRAM} {FOLDER}/*")
            if (await bare.stdout.readline()).strip() != "ready":
                raise SystemExit("the baseline did not start")
            writer = await writing.create_process("while read -r name; do : >$name; done")
            watcher, times = await asyncio.to_thread(Watcher, sandbox), dict[int, float]()
            watcher.start()
        reader = asyncio.ensure_future(read_bare(bare, times))
        seconds = START_SECONDS + options.count / min(options.rate, SLOWEST_RATE)
        async with step("new files", seconds, total=options.count, unit="names sent") as progress:
            sent = await change(writer, options.count, options.rate, progress, times)
        async with step("their reports", seconds, total=2 * len(sent), unit="reports") as progress:
            await wait_all(len(sent), progress, watcher.times, times)
        reader.cancel()
        theirs, ours = show("bare inotify", sent, times), show("watch", sent, watcher.times)
    missed = len(sent) - len(watcher.times)
    print(f"  p99 {ours:.1f} ms (below {BAR_MS:g}), {ours / theirs:.2f} times the baseline's, which waits for nothing")
    print(f"  {missed} missed, {watcher.overflows} overflows (none missed without an overflow)")
    return ours < BAR_MS and (not missed or watcher.overflows > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=1000, help="changes a second")
    parser.add_argument("--memory", type=int, default=512)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    # A disk with an inode for each file: one for each 16 KiB.
    disk = 1024 + options.count // 50
    with running_sandbox(Instance.load(), options.memory, disk_size_mb=disk) as sandbox:
        command_run(sandbox.url, sandbox.headers, f"for i in $(seq 0 {FOLDERS - 1}); do mkdir -p {FOLDER}/$i; done")
        if not run_steps(measure(sandbox, options)):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
