"""The parts of `benchmarks.forks` that need a machine of the libvirt driver alone, beside the running instance: what a
snapshot costs a guest that runs, and how long a copy takes to renew itself.

How long a guest stands still is seen from outside, by lines that its program writes over SSH: an emulated machine's own
clocks stand still, too, and show little of it. So the time contains all that keeps the program from running, and all
that keeps its packets from leaving.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import asyncssh
import httpx

from benchmarks.boot import RawMachine
from benchmarks.common import STATE, Instance, show, show_must
from benchmarks.raw import MACHINE, raw_settings
from vmbackend.driver import Boot, MachineSpec
from vmbackend.guest.bootconfig import CONTROL_PORT
from vmbackend.guest.ssh_limits import ALGORITHMS
from vmbackend.libvirt import copy_loading
from vmbackend.libvirt.driver import LibvirtDriver
from vmbackend.libvirt.snapshot_jobs import SnapshotJob

PROGRAM = "/dev/shm/standstill"  # of the guest
DIRTY_MB = 100
FIRST_LINES = 100  # they come before the snapshot begins
START_SECONDS = 120.0
SETTLE_SECONDS = 1.0
STANDSTILL_RATIO, STANDSTILL_SECONDS, RENEWAL = 0.50, 0.5, 0.25
SNAPSHOT, COPY = "snap_bench", "copy"


@dataclass(frozen=True)
class Guest:
    """A running guest that the platform's key opens."""

    ip: str
    key: Path

    async def connect(self) -> asyncssh.SSHClientConnection:
        """Connect as the platform itself does; a command's way is that of every command."""
        keys = [str(self.key)]
        return await asyncssh.connect(
            self.ip, CONTROL_PORT, username="root", client_keys=keys, known_hosts=None, config=None, **ALGORITHMS
        )

    def put_program(self) -> None:
        async def put() -> None:
            async with await self.connect() as connection:
                command = f"cat >{PROGRAM} && chmod 700 {PROGRAM}"
                await connection.run(command, input=compiled(), encoding=None, check=True)

        asyncio.run(put())


@dataclass(frozen=True)
class DrivenMachine:
    """A running machine of a driver of its own."""

    driver: LibvirtDriver
    spec: MachineSpec
    guest: Guest


def compiled() -> bytes:
    """Return the program, for any guest."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "program"
        source = Path(__file__).with_name("standstill.c")
        subprocess.run(["musl-gcc", "-static", "-O2", "-s", "-o", str(target), str(source)], check=True)
        return target.read_bytes()


@contextmanager
def driven_machine(instance: Instance, memory: int) -> Iterator[DrivenMachine]:
    """Yield a running machine of the instance's kit and image; all of it is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="mvmr-", dir="/tmp"))
    settings = raw_settings(folder)
    driver = LibvirtDriver(settings)
    driver.open(lambda event: None)
    try:
        image: Any = settings.images.ensure(  # type: ignore[attr-defined]
            instance.image, progress=lambda p, s: None, deadline=time.monotonic() + 300
        )
        spec = MachineSpec(
            id=MACHINE, image=image.digest, cpus=1, memory_mb=memory, disk_mb=512, ip="10.213.7.9", boot=Boot("driven")
        )
        driver.prepare(spec)
        driver.start(MACHINE)
        driver.wait_ready(MACHINE, START_SECONDS)
        yield DrivenMachine(driver, spec, Guest(spec.ip, folder / "key"))
    finally:
        driver.delete(COPY)
        driver.delete(MACHINE)
        driver.close()
        driver.uninstall()
        shutil.rmtree(folder, ignore_errors=True)


def measure_standstill(instance: Instance, driven: DrivenMachine, memory: int, rounds: int) -> None:
    """Compare the snapshots of the API with those of a driver that makes them without LIVE, in turns."""
    ours, baseline = list[float](), list[float]()
    with instance.workspace(memory) as (client, workspace_id):
        ip = client.get(f"/workspace/{workspace_id}").json()["workspace"]["ip"]
        guest = Guest(ip, STATE / "keys/control_ed25519")
        for each in (guest, driven.guest):
            each.put_program()
        for number in range(rounds):
            seen = watch(guest, lambda: _snapshot_by_api(client, workspace_id))
            time.sleep(SETTLE_SECONDS)
            other = watch(driven.guest, lambda: _snapshot_without_live(driven.driver))
            time.sleep(SETTLE_SECONDS)
            ours.append(seen.during)
            baseline.append(other.during)
            print(f"  {number + 1:>3}: live {seen}\n       without {other}", flush=True)
    show_must(show("standstill, live", ours, baseline, bar="of one without LIVE"), STANDSTILL_RATIO)
    show_must(statistics.median(ours), STANDSTILL_SECONDS, unit=" s")


@dataclass(frozen=True)
class Silence:
    """The longest silences of a guest in seconds, and the time that the snapshot took."""

    during: float
    before: float
    by_guest_clock: float
    snapshot: float

    def __str__(self) -> str:
        clocks = f"{self.during:.3f} s (before it {self.before:.3f}, by the guest's clock {self.by_guest_clock:.3f})"
        return f"{clocks} of {self.snapshot:.2f} s"


def watch(guest: Guest, snapshot: Callable[[], float]) -> Silence:
    """Return how long the guest was silent at most while the snapshot was made. `snapshot` returns what it took."""
    return asyncio.run(_watch(guest, snapshot))


async def _watch(guest: Guest, snapshot: Callable[[], float]) -> Silence:
    lines: list[float] = []
    clock: list[float] = []
    async with await guest.connect() as connection:
        process = await connection.create_process(f"exec {PROGRAM} {DIRTY_MB}")
        reader = asyncio.ensure_future(_read_times(process, lines, clock))
        async with asyncio.timeout(START_SECONDS):
            while len(lines) < FIRST_LINES:
                await asyncio.sleep(0.02)
        begun, taken = time.perf_counter(), await asyncio.to_thread(snapshot)
        ended = begun + taken
        async with asyncio.timeout(START_SECONDS):
            while lines[-1] <= ended:
                await asyncio.sleep(0.02)
        reader.cancel()
        process.close()
    first = sum(line <= begun for line in lines)
    return Silence(
        during=longest_gap(lines, begun, ended),
        before=longest_gap(lines, lines[1], begun),
        by_guest_clock=longest_gap(clock, clock[first - 1], clock[-1]),
        snapshot=taken,
    )


async def _read_times(process: Any, lines: list[float], clock: list[float]) -> None:
    async for line in process.stdout:
        lines.append(time.perf_counter())
        clock.append(int(line) / 1e6)


def longest_gap(times: Sequence[float], begun: float, ended: float) -> float:
    """Return the longest time between two of the times that is not wholly before or after these."""
    pairs = pairwise(times)
    return max(later - earlier for earlier, later in pairs if later > begun and earlier < ended)


def _snapshot_by_api(client: httpx.Client, workspace_id: str) -> float:
    begun = time.perf_counter()
    answer = client.post(f"/workspace/{workspace_id}/snapshot", json={})
    taken = time.perf_counter() - begun
    answer.raise_for_status()
    client.delete(f"/snapshots/{answer.json()['snapshot']['id']}").raise_for_status()
    return taken


def _snapshot_without_live(driver: LibvirtDriver) -> float:
    """Do all that the driver does, but for libvirt's job, which is asked to stop the machine first."""
    run = SnapshotJob.run

    def run_stopped(job: SnapshotJob, target: Any) -> None:
        run(replace(job, convergence=None), target)

    begun = time.perf_counter()
    with patch.object(SnapshotJob, "run", run_stopped):
        driver.snapshot(MACHINE, SNAPSHOT)
    taken = time.perf_counter() - begun
    driver.remove_snapshot(SNAPSHOT)
    driver.flatten(MACHINE, START_SECONDS)  # or each fourth snapshot would have to
    return taken


def measure_renewals(driven: DrivenMachine, raw_machine: RawMachine, rounds: int) -> None:
    """Compare the time from a copy's message to its answer with a raw boot, in turns. The parent is paused."""
    renewals, raw = list[float](), list[float]()
    driven.driver.snapshot(MACHINE, SNAPSHOT)
    driven.driver.pause(MACHINE)
    for number in range(rounds):
        raw.append(raw_machine.run())
        renewals.append(_renewal(driven))
        print(f"  {number + 1:>3}: raw {raw[-1]:.3f} s, renewal {renewals[-1]:.3f} s", flush=True)
    driven.driver.remove_snapshot(SNAPSHOT)
    show_must(show("renewal, sent to answered", renewals, raw, bar="of a raw boot"), RENEWAL)


def _renewal(driven: DrivenMachine) -> float:
    taken = list[float]()
    exchange = copy_loading.exchange_message

    def timed(*arguments: Any) -> None:
        begun = time.perf_counter()
        exchange(*arguments)
        taken.append(time.perf_counter() - begun)

    driven.driver.prepare(replace(driven.spec, id=COPY, ip="10.213.7.10", snapshot=SNAPSHOT))
    with patch.object(copy_loading, "exchange_message", timed):
        driven.driver.load(COPY, SNAPSHOT)
    driven.driver.delete(COPY)
    return taken[0]
