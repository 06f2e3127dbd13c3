"""Creates from the warm pool to the first successful command through the API, beside a raw QEMU start as in
`benchmarks.warm`, interleaved; then eight creates at once with a pool of four and a boot template, beside eight at once
of a size that nothing is ready for.

    STATE=./var .venv/bin/python -m benchmarks.warm_pool [--count 15] [--rounds 3] [--memory 512]

The instance has PLATFORM_POOL_MACHINES=4, PLATFORM_POOL_MEMORY_MB four times the memory, and PLATFORM_BOOT_TEMPLATES
above the number of rounds.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg

from benchmarks.boot import RawMachine
from benchmarks.common import Instance, show
from supervise.instance import load_instance

AT_ONCE, POOL = 8, 4
WAIT_SECONDS = 300.0
COUNT = "SELECT count(*) FROM workspaces_warmmachine WHERE state = 'ready' AND memory_mb = %s"


class Pooled:
    """Workspaces of the pool's size through the API. Each measured call returns seconds to the end of its command."""

    def __init__(self, client: httpx.Client, image: str, memory: int, disk: int) -> None:
        self.client, self.image, self.memory, self.disk = client, image, memory, disk
        self.made: list[tuple[str, str]] = []  # id, how it started
        self._database = load_instance().settings().database_url

    def measure(self, memory: int) -> float:
        begun = time.monotonic()
        config = {"memory_mb": memory, "disk_size_mb": self.disk}
        answer = self.client.post(
            "/workspace", json={"name": "bench", "image": self.image, "mode": "permanent", "config": config}
        )
        answer.raise_for_status()
        made = answer.json()["workspace"]
        ran = self.client.post(f"/workspace/{made['id']}/exec", json={"cmd": ["true"]})
        taken = time.monotonic() - begun
        if ran.json().get("exit_code") != 0:
            raise SystemExit(f"the command failed: {ran.text}")
        self.made.append((made["id"], made["started_from"]))
        return taken

    def measure_one(self) -> float:
        taken = self.measure(self.memory)
        self.delete_all({"pool": 1})
        return taken

    def measure_at_once(self, memory: int, began: dict[str, int]) -> float:
        """Return the seconds to the last one's first command."""
        begun = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(self.measure, [memory] * AT_ONCE))
        taken = time.monotonic() - begun
        self.delete_all(began)
        return taken

    def delete_all(self, began: dict[str, int] | None = None) -> None:
        """Delete what was made. End the run if `began` is given and they started from something else."""
        found = dict(Counter(start for _, start in self.made))
        for workspace_id, _ in self.made:
            self.client.delete(f"/workspace/{workspace_id}").raise_for_status()
        self.made.clear()
        if began is not None and found != began:
            raise SystemExit(f"starts were expected from {began}: {found}")

    def await_pool(self, number: int) -> None:
        """Wait until so many machines are ready."""
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            with psycopg.connect(self._database) as connection:
                row = connection.execute(COUNT, [self.memory]).fetchone()
            if row and row[0] >= number:
                return
            time.sleep(0.5)
        raise SystemExit("no machine becomes ready: has the instance a pool?")

    def make_demand(self) -> None:
        """Have as many creates as the pool has machines."""
        for _ in range(POOL):
            self.measure(self.memory)
        self.delete_all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3, help="of eight at once")
    parser.add_argument("--memory", type=int, default=512, help="MiB")
    parser.add_argument("--disk", type=int, default=512, help="MiB")
    options = parser.parse_args()
    instance = Instance.load()
    folder = Path(tempfile.mkdtemp(prefix="mvmb-"))
    try:
        with instance.client() as client:
            pooled = Pooled(client, instance.image, options.memory, options.disk)
            pooled.make_demand()
            _measure_creates(pooled, RawMachine(folder, instance, options.memory, options.disk), options.count)
            _measure_at_once(pooled, options.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure_creates(pooled: Pooled, raw_machine: RawMachine, count: int) -> None:
    raw, created = list[float](), list[float]()
    for number in range(count):
        pooled.await_pool(POOL)  # nothing is made in the background then
        raw.append(raw_machine.run())
        created.append(pooled.measure_one())
        print(f"  {number + 1:>3}: raw {raw[-1]:.3f} s, create {created[-1]:.3f} s", flush=True)
    show("create, pool", created, raw, bar="at most 0.20")
    if count > 1:
        p95 = statistics.quantiles(created, n=20)[-1] / statistics.median(created)
        print(f"  p95 {p95:.2f} medians, at most 1.5")


def _measure_at_once(pooled: Pooled, rounds: int) -> None:
    warm, cold = list[float](), list[float]()
    for number in range(rounds):
        pooled.await_pool(POOL)
        warm.append(pooled.measure_at_once(pooled.memory, {"pool": POOL, "template": AT_ONCE - POOL}))
        pooled.await_pool(POOL)
        cold.append(pooled.measure_at_once(pooled.memory + 16 * (number + 1), {"boot": AT_ONCE}))
        print(f"  {number + 1:>3}: the last of eight {warm[-1]:.2f} s, cold {cold[-1]:.2f} s", flush=True)
    show("the last of eight, pool of 4", warm, cold, bar="at most 0.60")


if __name__ == "__main__":
    main()
