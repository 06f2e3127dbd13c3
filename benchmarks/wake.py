"""Wake to first successful command through the API, beside a raw restore of the same guest by libvirt to its agent's
first command, and beside a start of a stopped workspace through the API. Interleaved.

    STATE=./var .venv/bin/python -m benchmarks.wake [--count 10] [--memory 512]
"""

from __future__ import annotations

import argparse
import time

import httpx

from benchmarks.common import Instance, show
from benchmarks.raw import COMMAND, RawGuest, raw_guest
from supervise.instance import load_instance
from tests.vm.sleep_command import SleepCommand, open_sleep_command

SETTLE_SECONDS = 1  # a machine that has just started takes CPU from the next
RAW_BAR, START_BAR = "at most 1.3", "at most 0.6"


def to_first_command(client: httpx.Client, path: str, how: str) -> float:
    """Seconds from the power request to the end of the first command."""
    begun = time.monotonic()
    client.post(f"{path}/{how}").raise_for_status()
    ran = client.post(f"{path}/exec", json={"cmd": list(COMMAND)})
    taken = time.monotonic() - begun
    if ran.json().get("exit_code") != 0:
        raise SystemExit(f"the command failed: {ran.text}")
    return taken


def raw_wake(guest: RawGuest) -> float:
    """The same by libvirt alone; the save is not part of the time, as in the API's measurement."""
    guest.domain.managedSave()
    begun = time.monotonic()
    guest.domain.create()
    guest.first_command()
    return time.monotonic() - begun


def measure(
    client: httpx.Client, path: str, workspace_id: str, guest: RawGuest, sleep_command: SleepCommand
) -> list[float]:
    raw = raw_wake(guest)
    time.sleep(SETTLE_SECONDS)
    sleep_command.sleep(workspace_id)
    wake = to_first_command(client, path, "resume")
    time.sleep(SETTLE_SECONDS)
    client.post(f"{path}/stop").raise_for_status()
    cold = to_first_command(client, path, "start")
    time.sleep(SETTLE_SECONDS)
    return [wake, raw, cold]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--memory", type=int, default=512, help="MiB")
    options = parser.parse_args()
    instance = Instance.load()
    here = load_instance()
    rows = []
    with (
        instance.workspace(options.memory) as (client, workspace_id),
        raw_guest(instance, options.memory) as guest,
        open_sleep_command(here, here.settings()) as sleep_command,
    ):
        for number in range(options.count):
            rows.append(measure(client, f"/workspace/{workspace_id}", workspace_id, guest, sleep_command))
            wake, raw, cold = rows[-1]
            print(f"  {number + 1:>3}: wake {wake:.3f} s, raw {raw:.3f} s, cold {cold:.3f} s", flush=True)
    wakes, raws, colds = ([row[column] for row in rows] for column in range(3))
    show("wake to first command", wakes, raws, bar=f"of a raw restore; {RAW_BAR}")
    show("wake to first command", wakes, colds, bar=f"of a start; {START_BAR}")


if __name__ == "__main__":
    main()
