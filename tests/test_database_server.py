"""The PostgreSQL of a run of tests ends with the run, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from supervise.instance import ROOT
from tests.database_server import OWNER, URL
from tests.threads import wait_until

RUN = """
import os, sys
from tests.database_server import URL, choose_server, ensure_server
choose_server()
ensure_server()
print(os.environ[URL], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that has a server of its own, and the URL of that."""
    environment = {key: value for key, value in os.environ.items() if key not in (URL, OWNER)}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'platform'}"
    command = [sys.executable, "-c", RUN]
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        process.kill()


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in command:
            found.append(command.replace(b"\0", b" ").decode())
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_of_a_run_that_is_ended_goes_with_its_folder(
    run: tuple[subprocess.Popen[str], str], number: signal.Signals
) -> None:
    process, url = run
    folder = Path(url.rpartition("=")[2])
    with closing(psycopg.connect(url)) as connection:
        assert connection.execute("SELECT count(*) FROM accounts_plan").fetchone() != (0,)
        assert connection.execute("SHOW is_superuser").fetchone() == ("off",)
        process.send_signal(number)
        wait_until(lambda: not folder.exists())
    wait_until(lambda: not processes_of(folder))
