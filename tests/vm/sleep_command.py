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
    """One process that takes ids, so that many sleeps do not start Django as many times. It is started when it is first
    asked, and again where it was ended with the processes of its instance.
    """

    def __init__(self, instance: Instance, settings: Env) -> None:
        """`settings` as the instance's processes have them."""
        self._instance, self._settings = instance, settings
        self._process: subprocess.Popen[str] | None = None

    def sleep(self, workspace_id: str) -> None:
        """Returns when the workspace sleeps; fails the test where it does not."""
        line = self.ask(workspace_id)
        assert line == f"{workspace_id} sleeping", line

    def ask(self, workspace_id: str) -> str:
        """The command's output line."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{workspace_id}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        environment = process_environment(self._instance, self._settings, supervised=True) | {ROLE: "command"}
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "workspace_sleep", "-"],
            env=environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        return self._process


@contextmanager
def open_sleep_command(instance: Instance, settings: Env) -> Iterator[SleepCommand]:
    """Of a running instance. The process ends with the block."""
    made = SleepCommand(instance, settings)
    try:
        yield made
    finally:
        made.close()
