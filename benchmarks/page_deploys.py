"""Deploys of 10,000 files from a machine, beside `tar` over plain ssh into a folder of the same file system; and of the
same folder with 10 changed files.

    STATE=./var .venv/bin/python -m benchmarks.page_deploys [--count 3] [--files 10000] [--bytes 2000]

The files are random bytes: nothing is compressed on either side. A deploy is the whole request: export, release,
written to the disk, live. What `tar` receives is written to it too, and before each begins all else is. Interleaved.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
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
  mkdir $part && cd $part && head -c {size} /dev/urandom | split -b {bytes} -a 3 - f && cd ..
done
find . -type f | wc -l
"""


def run(client: httpx.Client, workspace_id: str, cmd: str) -> str:
    """The output of a command in the machine."""
    answer = client.post(f"/workspace/{workspace_id}/exec", json={"cmd": cmd, "timeout_seconds": 600})
    answer.raise_for_status()
    body = answer.json()
    if body["exit_code"] != 0:
        raise SystemExit(f"{cmd}: {body['stderr']}")
    printed: str = body["stdout"].strip()
    return printed


def by_ssh(ip: str, folder: Path) -> float:
    """Seconds of the guest's tar over ssh into a folder, with its login, until it is on the disk."""
    options = ["-p", str(CONTROL_PORT), "-i", str(STATE / "keys/control_ed25519"), "-F", "/dev/null"]
    for option in ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "IdentitiesOnly=yes", "LogLevel=ERROR"):
        options += ["-o", option]
    remote = f"{KitPaths().busybox} tar -C {FOLDER} -cf - ."
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


def measure(client: httpx.Client, workspace_id: str, ip: str, folder: Path) -> tuple[float, float, float]:
    """A first deploy, the same by ssh, and a deploy with a few changed files."""
    first = deploy(client, "/pages", workspace_id=workspace_id, path=FOLDER, slug="bench-page")
    try:
        plain = by_ssh(ip, folder / "plain")
        shutil.rmtree(folder / "plain")
        run(client, workspace_id, f"cd {FOLDER}/7 && for f in $(ls | head -{CHANGED}); do echo $RANDOM$$ >>$f; done")
        return first, plain, deploy(client, "/pages/bench-page/deploy")
    finally:
        client.delete("/pages/bench-page").raise_for_status()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=2_000)
    options = parser.parse_args()
    instance = Instance.load()
    disk = 3 * options.files * (options.bytes + 4096) // (1 << 20) + 256
    with (
        instance.workspace(512, disk_size_mb=disk) as (client, workspace_id),
        tempfile.TemporaryDirectory(dir=STATE, prefix="bench-") as name,
    ):
        ip = client.get(f"/workspace/{workspace_id}").json()["workspace"]["ip"]
        script = _MAKE.format(folder=FOLDER, size=options.files * options.bytes // 100, bytes=options.bytes)
        print(f"  {run(client, workspace_id, script)} files in the machine", flush=True)
        rows = []
        for number in range(options.count):
            rows.append(measure(client, workspace_id, ip, Path(name)))
            print(
                f"  {number + 1:>3}: deploy {rows[-1][0]:6.2f} s, tar over ssh {rows[-1][1]:6.2f} s,"
                f" with {CHANGED} changed files {rows[-1][2]:6.2f} s",
                flush=True,
            )
    first, plain, again = ([row[column] for row in rows] for column in range(3))
    rates = [[options.files / seconds for seconds in times] for times in (first, plain)]
    show(f"deploy of {options.files} files", *rates, unit="files/s", bar="of the rate of tar over ssh; at least 0.7")
    show(f"with {CHANGED} changed files", again, first, bar="of the first deploy; at most 0.5")


if __name__ == "__main__":
    main()
