"""A search in 50,000 files of a sandbox beside the same by `rg` over plain SSH to the same guest: seconds, in turns.

STATE=./var .venv/bin/python -m benchmarks.search [--files 50000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import time

import httpx

from benchmarks.common import Instance, show
from benchmarks.sandboxes import Sandbox, command_run, running_sandbox
from vmbackend.guest.commands import KitPaths
from vmbackend.guest.search import LOADER, PROGRAM

BAR = "of rg over SSH; at most 1.3"
FOLDER = "/bench"
WORD = "needle"
# 100 files with the word, in folders of 500.
MAKE = f"""i=0; while [ $i -lt FILES ]; do d={FOLDER}/$((i / 500)); [ $((i % 500)) -ne 0 ] || mkdir -p $d
w=hay; [ $((i % (FILES / 100))) -ne 0 ] || w={WORD}
echo "one line of a small file, and $w $i" >$d/$i.txt; i=$((i + 1)); done"""
KIT = KitPaths()
# The program that the first search has brought into the guest's memory.
RG = f"""d=$(echo {KIT.tracking}/.search-*) && cd {FOLDER} && \\
exec {KIT.libraries}/{LOADER} --library-path $d:{KIT.libraries} $d/{PROGRAM} --no-config --no-ignore --hidden \\
--line-number --column --with-filename --fixed-strings {WORD} ."""


def by_api(client: httpx.Client, sandbox: Sandbox) -> tuple[float, int]:
    """Seconds of a search, and its matches."""
    begun = time.perf_counter()
    answer = client.post(f"{sandbox.url}/search", json={"path": FOLDER, "query": WORD}, headers=sandbox.headers)
    answer.raise_for_status()
    seconds = time.perf_counter() - begun
    return seconds, answer.json()["total"]


async def measure(sandbox: Sandbox, rounds: int) -> None:
    ours, theirs = [], []
    async with await sandbox.ssh() as connection:
        with httpx.Client(timeout=120, trust_env=False) as client:
            _, expected = by_api(client, sandbox)  # brings the program
            for number in range(rounds):
                begun = time.perf_counter()
                done = await connection.run(RG)
                theirs.append(time.perf_counter() - begun)
                found = done.stdout.count("\n") if isinstance(done.stdout, str) else 0
                seconds, total = by_api(client, sandbox)
                ours.append(seconds)
                if not found == total == expected:
                    raise SystemExit(f"found {total} and {found}: {done.stderr!r}")
                print(f"  {number + 1:>3}: {ours[-1]:.3f} s, rg {theirs[-1]:.3f} s, {total} matches", flush=True)
    show("search", ours, theirs, bar=BAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with running_sandbox(Instance.load(), 1024, disk_size_mb=1024) as sandbox:
        command_run(sandbox.url, sandbox.headers, MAKE.replace("FILES", str(options.files)))
        asyncio.run(measure(sandbox, options.rounds))


if __name__ == "__main__":
    main()
