"""A snapshot's disk while its guest writes much: a journal to replay, and nothing wrong after that.

ROUNDS in the environment says how many snapshots are made.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests.run_extent import number_of

from .conftest import Harness
from .snapshot_scenes import check_file_system, entry_of, flat_copy, run

pytestmark = [pytest.mark.vm, pytest.mark.campaign, pytest.mark.timeout(7200)]
ROUNDS = number_of("ROUNDS", 3, 100)
# Three programs replace files by ones that are on the disk before they get their names; each begins with the sum of its
# rest. Another one makes, links, cuts, renames and removes files, and one appends to a file.
BUSY = """
mkdir -p /busy/whole /busy/other && cd /busy
for own in 1 2 3; do (
    n=0
    while :; do
        n=$((n + 1))
        head -c $((n % 50 * 1000 + 500)) /dev/urandom > body-$own
        { md5sum < body-$own | cut -c 1-32; cat body-$own; } | dd of=part-$own conv=fsync 2> /dev/null
        mv part-$own whole/$own-$((n % 8))
    done
) < /dev/null > /dev/null 2>&1 & done
(
    n=0
    while :; do
        n=$((n + 1)); folder=other/$((n % 20))
        rm -rf $folder; mkdir $folder
        for name in a b c d e; do echo $n > $folder/$name; done
        ln $folder/a $folder/linked; mv $folder/b $folder/moved; truncate -s $((n * 1000 % 90000)) $folder/c
        [ $((n % 7)) != 0 ] || sync
    done
) < /dev/null > /dev/null 2>&1 &
(
    while :; do head -c 5000 /dev/urandom; done | while head -c 200000 > log; do sync log; done
) < /dev/null > /dev/null 2>&1 &
until [ -s whole/1-1 ] && [ -s whole/2-1 ] && [ -s whole/3-1 ] && [ -d other/9 ]; do sleep 0.1; done
"""


@pytest.fixture
def harness(libvirt_harness: Harness) -> Harness:
    return libvirt_harness


def require_whole_files(disk: Path, aside: Path) -> set[bytes]:
    """All files that had been synced before they got their names are whole; return their sums."""
    aside.mkdir()
    subprocess.run(["debugfs", "-R", f"rdump /upper/busy/whole {aside}", str(disk)], check=True, capture_output=True)
    files = sorted((aside / "whole").iterdir())
    assert len(files) > 3
    sums = set()
    for file in files:
        expected, _, body = file.read_bytes().partition(b"\n")
        assert hashlib.md5(body).hexdigest().encode() == expected, file.name
        sums.add(expected)
    return sums


def test_the_disk_of_each_snapshot_of_a_busy_guest_is_whole(harness: Harness, tmp_path: Path) -> None:
    address, last = harness.running_machine(disk_mb=96), set[bytes]()
    run(harness, address, BUSY)
    for number in range(ROUNDS):
        time.sleep(random.uniform(0.2, 2))
        name = f"s{number}"
        harness.driver.snapshot(address.machine_id, name, memory=number % 2 == 0)
        entry = entry_of(harness, name)
        disk = flat_copy(entry.path, entry.layers, tmp_path / f"{name}.raw")
        check_file_system(disk)
        sums = require_whole_files(disk, tmp_path / name)
        assert sums != last, "the guest goes on writing"
        last = sums
        harness.driver.remove_snapshot(name)
        disk.unlink()
