"""A file read and written through the API, beside OpenSSH's `sftp` with the same guest. Interleaved, and the memory
that each process of the instance grew by in that time.

    STATE=./var .venv/bin/python -m benchmarks.files [--count 3] [--size 256] [--memory 1024]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from benchmarks.common import STATE, Instance, show
from supervise.instance import load_instance
from supervise.orphans import MARKER, ROLE, environment_of
from vmbackend.guest.bootconfig import CONTROL_PORT
from vmbackend.guest.commands import KitPaths

RAW = "application/octet-stream"
BAR = "of sftp's rate; at least 0.8"
GROWTH_BAR_MB = 64
SERVERS = {"api", "streams", "worker", "vmhost", "edge", "redis"}


class Sftp:
    """One transfer a connection, as a person makes it; its login is part of the time, as ours is."""

    def __init__(self, ip: str) -> None:
        self._command = ["sftp", "-q", "-b", "-", "-P", str(CONTROL_PORT), "-i", str(STATE / "keys/control_ed25519")]
        for option in ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "IdentitiesOnly=yes"):
            self._command += ["-o", option]
        self._command += ["-F", "/dev/null", "-s", KitPaths().sftp_server, f"root@{ip}"]

    def put(self, local: Path, remote: str) -> None:
        self._run(f"put {local} {remote}")

    def get(self, remote: str, local: Path) -> None:
        self._run(f"get {remote} {local}")

    def _run(self, line: str) -> None:
        subprocess.run(self._command, input=line.encode(), check=True, stdout=subprocess.DEVNULL)


class Files:
    """The same through the API."""

    def __init__(self, client: httpx.Client, workspace_id: str) -> None:
        self._client = client
        self._path = f"/workspace/{workspace_id}/overlay/files"

    def put(self, local: Path, remote: str) -> None:
        with local.open("rb") as file:
            answer = self._client.post(self._path, params={"path": remote}, content=file, headers={"Content-Type": RAW})
        answer.raise_for_status()

    def get(self, remote: str, local: Path) -> None:
        request = self._client.stream("GET", self._path, params={"path": remote}, headers={"Accept": RAW})
        with request as answer, local.open("wb") as file:
            answer.raise_for_status()
            for piece in answer.iter_raw():
                file.write(piece)


def timed(transfer: Files | Sftp, how: str, *places: Path | str) -> float:
    begun = time.monotonic()
    getattr(transfer, how)(*places)
    return time.monotonic() - begun


def measure(ours: Files, theirs: Sftp, folder: Path) -> list[float]:
    """Seconds of a write and a read through the API, then of sftp's."""
    sent, got = folder / "sent", folder / "got"
    row = []
    for transfer in (ours, theirs):
        row.append(timed(transfer, "put", sent, "/root/bench"))
        row.append(timed(transfer, "get", "/root/bench", got))
        if subprocess.run(["cmp", sent, got], check=False).returncode != 0:
            raise SystemExit("what came back is not what was sent")
        got.unlink()
    return row


def processes() -> dict[int, str]:
    """The instance's server processes by pid."""
    marked = load_instance().id
    found = {}
    for entry in Path("/proc").iterdir():
        values = environment_of(int(entry.name)) if entry.name.isdigit() else {}
        if values.get(MARKER) == marked and values.get(ROLE) in SERVERS:
            found[int(entry.name)] = values[ROLE]
    return found


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


@contextmanager
def watched_memory() -> Iterator[None]:
    """Shows by how much each process's peak is above what it used at the beginning."""
    before = {}
    for pid in processes():
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak starts again at what is used now
        before[pid] = peak_mb(pid)
    yield
    names = processes()
    if not names.keys() >= before.keys():
        raise SystemExit("a process was restarted during the measurement")
    for pid, used in sorted(before.items(), key=lambda item: names[item[0]]):
        print(f"  {names[pid]:<8} {pid:>8}  {used:7.1f} MiB, at most {peak_mb(pid) - used:5.1f} more")
    worst = max(peak_mb(pid) - used for pid, used in before.items())
    print(f"  largest growth {worst:.1f} MiB (below {GROWTH_BAR_MB})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--size", type=int, default=256, help="MiB")
    parser.add_argument("--memory", type=int, default=1024, help="MiB")
    options = parser.parse_args()
    instance = Instance.load()
    with (
        instance.workspace(options.memory, disk_size_mb=3 * options.size + 256) as (client, workspace_id),
        tempfile.TemporaryDirectory() as name,
    ):
        folder = Path(name)
        block = os.urandom(1 << 20)
        with (folder / "sent").open("wb") as file:
            for _ in range(options.size):
                file.write(block)
        ip = client.get(f"/workspace/{workspace_id}").json()["workspace"]["ip"]
        ours, theirs = Files(client, workspace_id), Sftp(ip)
        measure(ours, theirs, folder)  # connections, imports, the guest's page cache
        rows = []
        with watched_memory():
            for number in range(options.count):
                rows.append(measure(ours, theirs, folder))
                print(f"  {number + 1:>3}: " + "  ".join(f"{value:6.2f} s" for value in rows[-1]), flush=True)
    rates = [[options.size / row[column] for row in rows] for column in range(4)]
    show("write through the API", rates[0], rates[2], unit="MiB/s", bar=BAR)
    show("read through the API", rates[1], rates[3], unit="MiB/s", bar=BAR)


if __name__ == "__main__":
    main()
