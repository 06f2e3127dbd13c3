"""Sleep requests, by `manage.py workspace_sleep`: no route puts a workspace to sleep before it was idle for minutes."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress

from config.env import Env
from supervise.configuration import process_environment
from supervise.instance import ROOT, Instance
from tests.chaos.ledger import Tracked
from tests.chaos.session import Session


class SleepRequests:
    """One command that reads ids. A fault of the platform may end it; the next request starts it again."""

    def __init__(self, instance: Instance, settings: Env) -> None:
        # Not marked as the instance's: what ends the instance's processes leaves it alone.
        self._environment = process_environment(instance, settings)
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def put_to_sleep(self, session: Session, tracked: Tracked) -> None:
        """Ask for it and wait for the outcome, which may be any; the memory is kept in all of them."""
        with self._lock:
            line = self._ask(tracked.id)
        outcome = "done" if line.startswith(f"{tracked.id} sleeping") else "refused" if line else "unanswered"
        session.report.count_operation("sleep", outcome)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _ask(self, workspace_id: str) -> str:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.write(f"{workspace_id}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()
        return ""

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "workspace_sleep", "-"],
            env=self._environment,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        return self._process
