"""`guest run`: what a command starts ends with its deadline, wherever it went, and outlives an ordinary end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.processes import is_running
from tests.vmbackend.hold_factory import CGROUPS, needs_cgroups
from tests.vmbackend.local_dropbear import missing_requirement

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")

GROUPS = [path / "kit" for path in CGROUPS]


def run(hold_program: Path, script: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(hold_program), "run", *options, "--", "sh", "-c", script], capture_output=True, timeout=60
    )


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + 120
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def groups_of(pid: int) -> list[Path]:
    return [path for base in GROUPS for path in base.glob(f"r-{pid}-*")]


@needs_cgroups
def test_the_deadline_kills_what_left_the_session_and_ignores_signals(hold_program: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"trap '' HUP TERM INT; setsid setsid sh -c 'echo $$ > {pid}; exec sleep 1000' & sleep 1000"
    with subprocess.Popen([str(hold_program), "run", "--timeout", "2", "--", "sh", "-c", script]) as process:
        assert process.wait(timeout=60) == 124
    wait_gone(int(pid.read_text()))
    deadline = time.monotonic() + 120
    while groups_of(process.pid):  # removed once the kernel has ended the last of them
        assert time.monotonic() < deadline
        assert run(hold_program, "exit 3").returncode == 3


@needs_cgroups
def test_a_command_whose_reader_is_gone_is_killed_with_all_it_started(hold_program: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ > {pid}; exec sleep 1000' > /dev/null & echo started; sleep 1000"
    process = subprocess.Popen([str(hold_program), "run", "--", "sh", "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    while not pid.exists() or not pid.read_text():
        time.sleep(0.02)
    process.stdout.close()
    assert process.wait(timeout=60) == 137
    wait_gone(int(pid.read_text()))


def test_a_background_process_lives_on_after_an_ordinary_end(hold_program: Path) -> None:
    done = run(hold_program, "sleep 1000 > /dev/null 2>&1 & echo $!")
    pid = int(done.stdout)
    try:
        assert done.returncode == 0
        assert is_running(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


@needs_cgroups
def test_the_group_of_a_command_is_removed_once_nothing_is_in_it(hold_program: Path) -> None:
    pid = int(run(hold_program, "setsid sleep 1000 > /dev/null 2>&1 & echo $!").stdout)
    group = Path(f"/proc/{pid}/cgroup").read_text().strip().splitlines()[-1].rpartition("/")[2]
    assert group.startswith("r-")
    assert any((base / group).exists() for base in GROUPS)
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    deadline = time.monotonic() + 120
    while any((base / group).exists() for base in GROUPS):
        assert time.monotonic() < deadline
        assert run(hold_program, "exit 3").returncode == 3


def test_with_a_grace_the_deadline_lets_a_command_clean_up_and_kills_the_rest(
    hold_program: Path, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    script = f"""trap 'echo cleaned; exit 3' TERM
        setsid sh -c 'trap "" TERM; echo $$ > {pid}; while :; do sleep 1; done' &
        while :; do sleep 0.1; done"""
    done = run(hold_program, script, "--timeout", "2", "--grace", "30")
    assert (done.returncode, done.stdout) == (124, b"cleaned\n")
    wait_gone(int(pid.read_text()))


def test_a_command_that_ignores_its_grace_is_killed(hold_program: Path) -> None:
    done = run(hold_program, "trap '' TERM; echo begun; while :; do sleep 1; done", "--timeout", "1", "--grace", "0.5")
    assert (done.returncode, done.stdout) == (124, b"begun\n")


def test_with_a_grace_a_command_whose_reader_is_gone_cleans_up(hold_program: Path, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    script = f"trap 'rm {lock}; exit 3' TERM; touch {lock}; echo begun; while :; do sleep 0.1; done"
    command = [str(hold_program), "run", "--grace", "30", "--", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.stdout.close()
        assert process.wait(timeout=60) == 3
    assert not lock.exists()
