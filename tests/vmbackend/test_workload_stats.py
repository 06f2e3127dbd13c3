"""What the guest program says that workloads take, of processes of this host below a kit's folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.vmbackend.local_dropbear import compile_helper

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(
        not all(shutil.which(name) for name in ("unshare", "setsid", "musl-gcc")), reason="tools are missing"
    ),
]
SCRIPT = textwrap.dedent(
    """
    set -e
    mount -t tmpfs kit /run
    mkdir -p /run/kit/service/w-busy/supervise /run/kit/service/w-idle/supervise /run/kit/service/w-ended/supervise
    sleep 120 & stage=$!
    echo $stage > /run/kit/stage
    busy='setsid sleep 90 & (x=$(head -c 8000000 /dev/zero | tr "\\\\0" x); while :; do :; done) & wait'
    setsid sh -c "$busy" & busy=$!
    setsid sleep 90 & idle=$!
    for name in busy idle; do echo run > /run/kit/service/w-$name/supervise/stat; done
    echo $busy > /run/kit/service/w-busy/supervise/pid
    echo $idle > /run/kit/service/w-idle/supervise/pid
    echo down > /run/kit/service/w-ended/supervise/stat
    for turn in 1 2 3; do sleep 2; "$1" workloads stats; done
    "$1" workloads nothing 2>&1 || echo "code $?"
    """
)


def test_the_processes_of_a_workloads_session_are_summed(tmp_path: Path) -> None:
    helper = tmp_path / "guest"
    compile_helper(helper)
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        SCRIPT,
        "sh",
        str(helper),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    *lines, usage, code = done.stdout.splitlines()
    assert usage.startswith("guest: usage: guest workloads list | stats |")
    assert code == "code 126"
    assert "ended 0 0 0 0" in lines
    first, last = ([int(word) for word in found[0].split(" ")[1:]] for found in _ends(lines, "busy"))
    assert last[0] == first[0] > 0
    assert last[1] - first[1] >= 4000
    assert 0 < last[2] - first[2] <= (last[1] - first[1]) * 1.1
    assert last[3] > 8_000_000
    idle = [int(word) for word in _ends(lines, "idle")[1][0].split(" ")[1:]]
    assert (idle[1] >= 5000, idle[2] <= 100, 0 < idle[3] < 4_000_000) == (True, True, True)


def _ends(lines: list[str], name: str) -> tuple[list[str], list[str]]:
    found = [line for line in lines if line.startswith(f"{name} ")]
    return found[:1], found[-1:]
