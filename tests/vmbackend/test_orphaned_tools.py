"""Confined tools whose outer process was killed before they had asked to end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vmbackend.orphaned_tools import kill_orphaned_tools

pytestmark = pytest.mark.host
# Two processes under the name bwrap: one outside, and the first of a namespace, which waits for ever.
INNER = f"exec -a bwrap {sys.executable} -c 'import time; time.sleep(600)' --die-with-parent"
OUTER = f'exec -a bwrap unshare --pid --fork -- bash -c "{INNER}"'


def children(pid: int) -> list[int]:
    return [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def tool() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The outer process, and the pid of the inner one."""
    with subprocess.Popen(["bash", "-c", OUTER], start_new_session=True) as outer:
        deadline, inner = time.monotonic() + 60, 0
        while not inner or b"--die-with-parent" not in Path(f"/proc/{inner}/cmdline").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.02)
            inner = (children(outer.pid) or [0])[0]
        try:
            yield outer, inner
        finally:
            outer.kill()
            if is_alive(inner):
                os.kill(inner, signal.SIGKILL)


def test_a_tool_whose_outer_process_is_dead_is_killed() -> None:
    with tool() as (outer, inner):
        outer.kill()
        outer.wait()
        assert is_alive(inner)
        assert inner in kill_orphaned_tools()
        wait_until_dead(inner)


def test_a_tool_that_runs_is_left_alone() -> None:
    with tool() as (outer, inner):
        found = kill_orphaned_tools()
        assert not {outer.pid, inner} & set(found)
        assert is_alive(inner)
