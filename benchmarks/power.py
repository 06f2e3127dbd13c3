"""Stop, start, pause and resume through the API beside the same libvirt calls on a guest of the same kind.
Interleaved.

    STATE=./var .venv/bin/python -m benchmarks.power [--count 10] [--memory 512]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from benchmarks.common import Instance, show
from benchmarks.raw import raw_guest

BAR = "median overhead below 100 ms"
SETTLE_SECONDS = 1
MOVES = ("pause", "resume", "stop", "start")


def seconds(call: Callable[[], object]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--memory", type=int, default=512, help="MiB")
    options = parser.parse_args()
    instance = Instance.load()
    ours: dict[str, list[float]] = {move: [] for move in MOVES}
    raw: dict[str, list[float]] = {move: [] for move in MOVES}
    with instance.workspace(options.memory) as (client, workspace_id), raw_guest(instance, options.memory) as guest:
        calls = {
            "pause": guest.domain.suspend,
            "resume": guest.domain.resume,
            "stop": guest.stop,
            "start": guest.start,
        }
        for number in range(options.count):
            for move in MOVES:
                path = f"/workspace/{workspace_id}/{move}"
                pair = [
                    (raw[move], calls[move]),
                    (ours[move], lambda path=path: client.post(path).raise_for_status()),
                ]
                # They take turns in going first: a machine that has just booted takes CPU from the next one's boot.
                for times, call in pair if number % 2 else reversed(pair):
                    times.append(seconds(call))
                    time.sleep(SETTLE_SECONDS)
            shown = ", ".join(f"{move} {ours[move][-1]:.3f}/{raw[move][-1]:.3f}" for move in MOVES)
            print(f"  {number + 1:>3}: {shown}", flush=True)
    for move in MOVES:
        show(move, ours[move], raw[move], bar=BAR)
        overhead = statistics.median(ours[move]) - statistics.median(raw[move])
        print(f"  overhead {overhead * 1000:.0f} ms")


if __name__ == "__main__":
    main()
