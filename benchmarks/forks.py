"""Named snapshots and forks, each figure beside its baseline in the same run, in turns; each bar beside what was seen.

    STATE=./var .venv/bin/python -m benchmarks.forks [--rounds 15] [--only PART ...]

standstill  a snapshot of a running guest that has just changed 100 MiB, beside one made without LIVE
renewal     a copy's message to its answer, beside a raw QEMU start as in `benchmarks.boot`
fork        a fork of a running workspace to its first command, beside the same
eight       eight creates from one snapshot at once to the last one's first command, beside eight wakes at once
list        10,000 snapshots listed, beside 10,000 workspaces (`benchmarks.snapshot_rows`; needs no instance)
held        what the processes of a host hold with 1,000 snapshots and sleeping workspaces more (the same)

The instance has PLATFORM_BOOT_TEMPLATES=0 and PLATFORM_POOL_MEMORY_MB=0: nothing is made in the background.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from benchmarks.boot import RawMachine
from benchmarks.common import Instance, show, show_must
from benchmarks.fork_guests import driven_machine, measure_renewals, measure_standstill
from supervise.instance import load_instance
from tests.vm.sleep_command import SleepCommand, open_sleep_command

AT_ONCE = 8
FORK, EIGHT = 0.65, 1.8
SETTLE_SECONDS = 1.0
DISK_MB = 512
DRIVEN, WITH_INSTANCE, ROWS = ("standstill", "renewal"), ("fork", "eight"), ("list", "held")


class Copies:
    """Workspaces of one size through the API, and copies of them."""

    def __init__(self, client: httpx.Client, image: str, memory: int) -> None:
        self.client = client
        config = {"memory_mb": memory, "disk_size_mb": DISK_MB}
        self._body = {"image": image, "config": config}
        self._left: list[str] = []  # what was made and is not deleted

    def create(self, **source: str) -> str:
        """Create a workspace, from a snapshot if `source` names one; return its id."""
        body = {"name": "bench", "mode": "permanent", **(source or self._body)}
        self._left.append(self._post("/workspace", body)["workspace"]["id"])
        return self._left[-1]

    def fork(self, parent: str) -> str:
        entry = self._post(f"/workspace/{parent}/fork", {"mode": "permanent"})["forks"][0]
        self._left.append(entry["workspace"]["id"])
        return self._left[-1]

    def snapshot(self, parent: str) -> str:
        return str(self._post(f"/workspace/{parent}/snapshot", {})["snapshot"]["id"])

    def run_command(self, workspace_id: str) -> None:
        ran = self._post(f"/workspace/{workspace_id}/exec", {"cmd": ["true"]})
        if ran["exit_code"] != 0:
            raise SystemExit(f"the command failed: {ran}")

    def wake(self, workspace_id: str) -> None:
        self._post(f"/workspace/{workspace_id}/resume", {})

    def require_start(self, workspace_id: str, kind: str) -> None:
        """End the run unless the workspace started in this way."""
        found = self.client.get(f"/workspace/{workspace_id}").json()["workspace"]["started_from"]
        if found != kind:
            raise SystemExit(f"{workspace_id} started from {found}, not from {kind}")

    def delete(self, workspace_ids: Sequence[str]) -> None:
        for workspace_id in workspace_ids:
            self.client.delete(f"/workspace/{workspace_id}").raise_for_status()
            self._left.remove(workspace_id)

    def delete_all(self) -> None:
        """Delete what a run that failed has left."""
        self.delete(list(self._left))

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.client.post(path, json=body)
        if answer.is_error:
            raise SystemExit(f"{path}: {answer.status_code} {answer.text}")
        found: dict[str, Any] = answer.json()
        return found


def run_at_once(calls: Sequence[Callable[[], str]]) -> tuple[float, list[str]]:
    """Return the seconds until the last call has ended, and what they returned."""
    begun = time.monotonic()
    with ThreadPoolExecutor(len(calls)) as threads:
        found = list(threads.map(lambda call: call(), calls))
    return time.monotonic() - begun, found


def measure_fork(copies: Copies, raw_machine: RawMachine, rounds: int) -> None:
    """Compare forks to their first command with raw boots, in turns."""
    parent = copies.create()
    # The first snapshot with an image reads the whole image.
    print(f"  the first fork since the start of the instance, not counted: {_fork(copies, parent):.3f} s", flush=True)
    raw, forked = list[float](), list[float]()
    for number in range(rounds):
        time.sleep(SETTLE_SECONDS)
        raw.append(raw_machine.run())
        forked.append(_fork(copies, parent))
        print(f"  {number + 1:>3}: raw {raw[-1]:.3f} s, fork {forked[-1]:.3f} s", flush=True)
    copies.delete([parent])
    show_must(show("fork to first command", forked, raw, bar="of a raw boot"), FORK)


def _fork(copies: Copies, parent: str) -> float:
    begun = time.monotonic()
    made = copies.fork(parent)
    copies.run_command(made)
    taken = time.monotonic() - begun
    copies.require_start(made, "fork")
    copies.delete([made])
    return taken


def measure_eight(copies: Copies, sleep_command: SleepCommand, rounds: int) -> None:
    """Compare creates from one snapshot with wakes, both at once and to the last one's first command, in turns."""
    parent = copies.create()
    snapshot = copies.snapshot(parent)
    asleep = [copies.create() for _ in range(AT_ONCE)]
    made, woken = list[float](), list[float]()
    for number in range(rounds):
        for each in asleep:
            sleep_command.sleep(each)
        made.append(_eight_copies(copies, snapshot))
        time.sleep(SETTLE_SECONDS)
        woken.append(run_at_once([_waking(copies, each) for each in asleep])[0])
        print(f"  {number + 1:>3}: the last of eight copies {made[-1]:.2f} s, wakes {woken[-1]:.2f} s", flush=True)
    copies.delete([parent, *asleep])
    show_must(show("the last of eight copies", made, woken, bar="of eight wakes"), EIGHT)


def _eight_copies(copies: Copies, snapshot: str) -> float:
    def make() -> str:
        made = copies.create(snapshot=snapshot)
        copies.run_command(made)
        return made

    taken, ids = run_at_once([make] * AT_ONCE)
    for each in ids:
        copies.require_start(each, "snapshot")
    copies.delete(ids)
    return taken


def _waking(copies: Copies, workspace_id: str) -> Callable[[], str]:
    def wake() -> str:
        copies.wake(workspace_id)
        copies.run_command(workspace_id)
        return workspace_id

    return wake


def measure_instance(options: argparse.Namespace, parts: Sequence[str], folder: Path) -> None:
    instance, here = Instance.load(), load_instance()
    raw_machine = RawMachine(folder, instance, options.memory, DISK_MB)
    if set(parts) & set(DRIVEN):
        with driven_machine(instance, options.memory) as driven:
            if "standstill" in parts:
                measure_standstill(instance, driven, options.memory, options.rounds)
            if "renewal" in parts:
                measure_renewals(driven, raw_machine, options.rounds)
    with instance.client() as client, open_sleep_command(here, here.settings()) as sleep_command:
        copies = Copies(client, instance.image, options.memory)
        try:
            if "fork" in parts:
                measure_fork(copies, raw_machine, options.rounds)
            if "eight" in parts:
                measure_eight(copies, sleep_command, options.rounds)
        finally:
            copies.delete_all()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--memory", type=int, default=512, help="MiB")
    every = (*DRIVEN, *WITH_INSTANCE, *ROWS)
    parser.add_argument("--only", nargs="+", choices=every, default=every, metavar="PART", help=", ".join(every))
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    parts = [part for part in options.only if part not in ROWS]
    if parts:
        folder = Path(tempfile.mkdtemp(prefix="mvmb-"))
        try:
            measure_instance(options, parts, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    for part in (part for part in ROWS if part in options.only):
        # A process of its own, as its settings and its database differ.
        command = [sys.executable, "-m", "benchmarks.snapshot_rows", part, "--rounds", str(options.rounds)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
