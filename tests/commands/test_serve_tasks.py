"""The command that runs workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import LazySettings

from config import celery
from tests.vm.client import until

COMMAND = ["-m", "config.serve_tasks", "worker", "--pool", "threads", "-c", "1", "-Q", "media", "-n", "tried@host"]


class Worker:
    """The process, and its log."""

    def __init__(self, log: Path) -> None:
        self.log = log
        path = os.pathsep.join(sys.path)
        environment = {**os.environ, "PLATFORM_ROLE": "media", "PLATFORM_LOG_LEVEL": "INFO", "PYTHONPATH": path}
        with log.open("wb") as output:
            self.process = subprocess.Popen([sys.executable, *COMMAND], env=environment, stderr=output)

    def wait_until_ready(self, times: int = 1) -> None:
        until(lambda: self.log.read_text().count("mingle: all alone") == times, 120, "the worker is ready")


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path / "log")
    yield made
    made.process.kill()
    made.process.wait(60)


def test_a_worker_that_gets_sighup_is_the_same_worker_again(worker: Worker) -> None:
    worker.wait_until_ready()
    worker.process.send_signal(signal.SIGHUP)
    worker.wait_until_ready(2)
    words = Path(f"/proc/{worker.process.pid}/cmdline").read_bytes().decode().split("\0")
    assert words[1:-1] == COMMAND


def test_a_worker_ends_with_success_at_sigterm(worker: Worker) -> None:
    worker.wait_until_ready()
    worker.process.terminate()
    assert worker.process.wait(60) == 0


@pytest.mark.parametrize(
    ("role", "module"),
    [
        ("hooks", "webhooks.dispatcher"),
        ("push", "notifications.sends.dispatcher"),
        ("pages", "certificates.dispatcher"),
        ("pages", "domains.check"),
    ],
)
def test_a_worker_that_cannot_load_what_it_is_for_ends(
    role: str,
    module: str,
    settings: LazySettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Celery would go on, and the process would never do its work; its supervisor starts it again."""
    settings.ENV = settings.ENV.model_copy(update={"role": role})
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(celery, "_begun", [])
    with pytest.raises(SystemExit):
        celery.begin_work()
