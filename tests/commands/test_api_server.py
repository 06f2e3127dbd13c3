"""The api's server: one process that loads the application, and its forks that serve."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervise.instance import ROOT

WORKERS = 2


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    paths = f"{ROOT}{os.pathsep}{ROOT / 'platform'}"
    command = [sys.executable, "-m", "config.serve_wsgi", "tests.commands.loaded_app:application"]
    with subprocess.Popen(
        [*command, "--uds", str(tmp_path / "socket"), "--workers", str(WORKERS)],
        env={**os.environ, "PYTHONPATH": paths, "LOADED": str(tmp_path / "loaded")},
    ) as made:
        yield made
        made.terminate()


def wait_for(what: Callable[[], set[int]]) -> set[int]:
    """Until there are as many as there shall be workers."""
    ends = time.monotonic() + 120
    while len(found := what()) != WORKERS:
        assert time.monotonic() < ends
        time.sleep(0.05)
    return found


def answering(path: Path, pids: set[int]) -> set[int]:
    """Of these processes those that answer, among twenty requests."""
    answered: set[int] = set()
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(path))
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
            except OSError:  # it does not listen yet, or a worker has just died
                continue
        answered |= {int(answer.rpartition(b"\r\n")[2])} if answer.startswith(b"HTTP/1.1 200") else set()
    return answered & pids


def test_the_application_is_loaded_once_also_for_a_worker_that_replaces_another(
    server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")

    def workers() -> set[int]:
        return {int(pid) for pid in children.read_text().split()}

    first = wait_for(workers)
    assert wait_for(lambda: answering(tmp_path / "socket", first)) == first
    killed = min(first)
    os.kill(killed, signal.SIGKILL)
    second = wait_for(lambda: workers() - {killed})
    assert second != first
    assert wait_for(lambda: answering(tmp_path / "socket", second)) == second
    assert (tmp_path / "loaded").read_text().split() == [str(server.pid)]
