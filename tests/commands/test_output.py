"""Output of a command that nobody reads any more, as after `make up | head -1`."""

from __future__ import annotations

import os
import subprocess
import sys

from supervise.instance import ROOT

HEAD = "import subprocess, sys; from supervise import output\n"


def run_unread(code: str) -> tuple[int, str]:
    """Run it with a pipe that has no reader; return its exit code and what it wrote to the other one."""
    reader, writer = os.pipe()
    os.close(reader)
    path = f"{ROOT}{os.pathsep}{ROOT / 'platform'}"
    done = subprocess.run(
        [sys.executable, "-c", HEAD + code],
        env={**os.environ, "PYTHONPATH": path},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    return done.returncode, done.stderr


def test_a_command_goes_on_without_its_reader() -> None:
    printed = "output.print_message('one'); output.print_block('two')\n"
    step = "with output.progress_of('A step') as report: report(50, 'half')\n"
    child = "done = subprocess.run(['echo', 'three']).returncode\n"
    code = printed + step + child + "print('started', done, file=sys.stderr)"
    assert run_unread(code) == (0, "started 0\n")


def test_following_logs_learns_that_its_reader_is_gone() -> None:
    code, errors = run_unread("output.print_line('api', 'one')")
    assert code != 0
    assert "BrokenPipeError" in errors
