"""Confined tools whose outer process was killed before they had asked to end with it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.compiled import compile_program
from vmbackend.orphaned_tools import CONFINED, kill_orphaned_tools
from vmbackend.tool_confinement import ToolConfinement, confined_command

pytestmark = pytest.mark.host
WAITS = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Waits for ever, whatever its arguments are, as bwrap's inner process does."""
    folder = tmp_path_factory.mktemp("waits")
    (folder / "waits.c").write_text(WAITS)
    compile_program(folder / "waits", ["-static"], [folder / "waits.c"])
    return folder / "waits"


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
def tool(program: Path, name: str = "bwrap", container: str = "") -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process in the place of bwrap's outer one, and the pid of the inner one: the first of a namespace, with the
    command of a confined tool but for `name`. `container`: a command before them.
    """
    arguments = shlex.join(CONFINED[1:])
    inner = f"exec -a {name} {program} {arguments}"
    outer = f"{container} unshare --pid --fork -- bash -c {shlex.quote(inner)}"
    with subprocess.Popen(["bash", "-c", outer], start_new_session=True) as process:
        try:
            yield process, wait_for_program(process.pid, program)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def wait_for_program(pid: int, program: Path) -> int:
    """The pid of the process below this one that runs the program."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for found in descendants(pid):
            with suppress(OSError):
                if Path(f"/proc/{found}/exe").readlink() == program:
                    return found
        time.sleep(0.02)
    raise AssertionError("the program does not run")


def descendants(pid: int) -> list[int]:
    try:
        below = [int(found) for found in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [pid, *(each for child in below for each in descendants(child))]


def test_a_tool_whose_outer_process_is_gone_is_killed(program: Path) -> None:
    with tool(program) as (_, inner):
        assert inner in kill_orphaned_tools()
        wait_until_dead(inner)


def test_a_tool_that_runs_is_left_alone(tmp_path: Path) -> None:
    """Real ones, whose outer process lives."""
    confinement = ToolConfinement(readable=((tmp_path, "/folder"),))
    with (
        confined_command(["sleep", "600"], confinement) as (command, descriptors),
        subprocess.Popen(command, pass_fds=descriptors, start_new_session=True) as process,
    ):
        try:
            deadline = time.monotonic() + 60
            while len(descendants(process.pid)) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert not set(descendants(process.pid)) & set(kill_orphaned_tools())
            assert process.poll() is None
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(("name", "container"), [("other", ""), ("bwrap", "unshare --pid --fork --")])
def test_a_process_of_another_program_or_of_a_container_is_left_alone(program: Path, name: str, container: str) -> None:
    with tool(program, name, container) as (_, inner):
        assert inner not in kill_orphaned_tools()
        assert is_alive(inner)
