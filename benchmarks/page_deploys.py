"""Deploys of 10,000 files from a machine, beside `tar` over plain ssh into a folder of the same file system; and of the
same folder with 10 changed files.

    STATE=./var .venv/bin/python -m benchmarks.page_deploys [--count 3] [--files 10000] [--bytes 2000]

Once the files are random bytes, of which no compressed copies are made, as tar makes none; then they are text, as most
of a site is, of which a first deploy makes copies, and the next one only of what has changed. A deploy is the whole
request: export, release, written to the disk, live. What `tar` receives is written to it, too, and before each begins
all else is. Interleaved.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx

from benchmarks.common import STATE, Instance, show
from vmbackend.guest.bootconfig import CONTROL_PORT
from vmbackend.guest.commands import KitPaths

FOLDER = "/root/site"
CHANGED = 10
_MAKE = """
mkdir -p {folder} && cd {folder} && echo home >index.html
for part in $(seq 0 99); do
  mkdir $part && cd $part && head -c {size} /dev/urandom | {filter} | head -c {size} |
  split -b {bytes} -a 3 --additional-suffix={ending} - f && cd ..
done
find . -type f | wc -l
"""
_KINDS = {"random": ("cat", ".png"), "text": ("base64", ".html")}


def run(client: httpx.Client, workspace_id: str, cmd: str) -> str:
    """The output of a command in the machine."""
    answer = client.post(f"/workspace/{workspace_id}/exec", json={"cmd": cmd, "timeout_seconds": 600})
    answer.raise_for_status()
    body = answer.json()
    if body["exit_code"] != 0:
        raise SystemExit(f"{cmd}: {body['stderr']}")
    printed: str = body["stdout"].strip()
    return printed


def by_ssh(ip: str, path: str, folder: Path) -> float:
    """Seconds of the guest's tar over ssh into a folder, with its login, until it is on the disk."""
    options = ["-p", str(CONTROL_PORT), "-i", str(STATE / "keys/control_ed25519"), "-F", "/dev/null"]
    for option in ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "IdentitiesOnly=yes", "LogLevel=ERROR"):
        options += ["-o", option]
    remote = f"{KitPaths().busybox} tar -C {path} -cf - ."
    folder.mkdir()
    os.sync()
    begun = time.monotonic()
    with subprocess.Popen(["ssh", *options, f"root@{ip}", remote], stdout=subprocess.PIPE) as sent:
        subprocess.run(["tar", "-C", str(folder), "-xf", "-"], stdin=sent.stdout, check=True)
    if sent.returncode != 0:
        raise SystemExit("ssh failed")
    subprocess.run(["sync", "-f", str(folder)], check=True)
    return time.monotonic() - begun


def deploy(client: httpx.Client, route: str, **body: str) -> float:
    """Seconds of a deploy."""
    os.sync()
    begun = time.monotonic()
    answer = client.post(route, json=body)
    if answer.status_code not in (200, 201):
        raise SystemExit(f"{route}: {answer.status_code} {answer.text}")
    return time.monotonic() - begun


def measure(client: httpx.Client, workspace_id: str, path: str, plain: Callable[[], float]) -> list[float]:
    """Seconds of a first deploy, of the same by ssh, and of a deploy with a few changed files."""
    first = deploy(client, "/pages", workspace_id=workspace_id, path=path, slug="bench-page")
    try:
        beside = plain()
        run(client, workspace_id, f"cd {path}/7 && for f in $(ls | head -{CHANGED}); do echo $RANDOM$$ >>$f; done")
        return [first, beside, deploy(client, "/pages/bench-page/deploy")]
    finally:
        client.delete("/pages/bench-page").raise_for_status()


def make_files(client: httpx.Client, workspace_id: str, options: argparse.Namespace) -> None:
    for kind, (command, ending) in _KINDS.items():
        given = {"folder": f"{FOLDER}/{kind}", "filter": command, "ending": ending, "bytes": options.bytes}
        script = _MAKE.format(size=options.files * options.bytes // 100, **given)
        print(f"  {run(client, workspace_id, script)} files of {kind} in the machine", flush=True)


def measured_kinds(instance: Instance, options: argparse.Namespace) -> dict[str, list[list[float]]]:
    """What `measure` returns, by kind of files and round."""
    disk = 6 * options.files * (options.bytes + 4096) // (1 << 20) + 256
    rows: dict[str, list[list[float]]] = {kind: [] for kind in _KINDS}
    with (
        instance.workspace(512, disk_size_mb=disk) as (client, workspace_id),
        tempfile.TemporaryDirectory(dir=STATE, prefix="bench-") as name,
    ):
        ip = client.get(f"/workspace/{workspace_id}").json()["workspace"]["ip"]
        make_files(client, workspace_id, options)
        for number in range(options.count):
            for kind, done in rows.items():
                target = Path(name) / f"{kind}{number}"
                plain = partial(by_ssh, ip, f"{FOLDER}/{kind}", target)
                done.append(measure(client, workspace_id, f"{FOLDER}/{kind}", plain))
                print(
                    f"  {number + 1:>3}: {kind:<6} deploy {done[-1][0]:6.2f} s, tar over ssh {done[-1][1]:6.2f} s,"
                    f" with {CHANGED} changed files {done[-1][2]:6.2f} s",
                    flush=True,
                )
                shutil.rmtree(target)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=2_000)
    options = parser.parse_args()
    for kind, rows in measured_kinds(Instance.load(), options).items():
        first, plain, again = ([row[column] for row in rows] for column in range(3))
        rates = [[options.files / seconds for seconds in times] for times in (first, plain)]
        bars = ("at least 0.7", "no bar") if kind == "random" else ("no bar", "at most 0.5")
        show(f"{options.files} files, {kind}", *rates, unit="files/s", bar=f"of the rate of tar over ssh; {bars[0]}")
        show(f"{CHANGED} of them changed", again, first, bar=f"of the first deploy; {bars[1]}")


if __name__ == "__main__":
    main()
