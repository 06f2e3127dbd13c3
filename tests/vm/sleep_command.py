"""Putting machines to sleep without waiting for their idle time, as staff do: one `manage.py workspace_sleep`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from config.env import Env
from supervise.configuration import process_environment
from supervise.instance import ROOT, Instance
from supervise.orphans import ROLE


class SleepCommand:
    """One process that takes ids, so that many sleeps do not start Django as many times."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sleep(self, workspace_id: str) -> None:
        """Returns when the workspace sleeps; fails the test where it does not."""
        line = self.ask(workspace_id)
        assert line == f"{workspace_id} sleeping", line

    def ask(self, workspace_id: str) -> str:
        """The command's output line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{workspace_id}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def open_sleep_command(instance: Instance, settings: Env) -> Iterator[SleepCommand]:
    """Of a running instance; `settings` as its processes have them. The process ends with the block."""
    environment = process_environment(instance, settings, supervised=True) | {ROLE: "command"}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "workspace_sleep", "-"],
        env=environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        yield SleepCommand(process)
    finally:
        process.kill()
        process.wait()
