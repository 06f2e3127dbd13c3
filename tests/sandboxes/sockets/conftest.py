"""A streams process, sandboxes whose guests are processes of this host, and clients."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from django.conf import settings

from sandboxes.models import Sandbox
from tests.callers import Caller
from tests.environment import STATE
from tests.killed_process import database_url
from tests.sandboxes.rows import make_sandbox
from tests.sandboxes.sockets.client import WebSocketClient
from tests.sandboxes.sockets.served import FOLDER, HELPER
from tests.vmbackend.hold_factory import LocalHold, end_program
from tests.vmbackend.local_dropbear import missing_requirement

ROOT = Path(__file__).parents[3]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing_requirement()
    for item in items:
        if reason and "streams" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason=reason))


class Streams:
    """One process on a Unix socket, which a new one may take over."""

    def __init__(self, helper: Path, folder: Path, log: Path) -> None:
        self.helper, self.folder, self.log = helper, folder, log
        self.socket = STATE / f"ws-{os.urandom(3).hex()}.sock"
        self.start()

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        environment = {
            **os.environ,
            **settings.ENV.variables(),
            "PLATFORM_DATABASE_URL": database_url(),
            "PLATFORM_LOG_LEVEL": "INFO",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            HELPER: str(self.helper),
            FOLDER: str(self.folder),
        }
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.sandboxes.sockets.served"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--uds", str(self.socket)], cwd=ROOT, env=environment, stdout=log, stderr=log
            )
        until = time.monotonic() + 120
        while not self.listens():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < until
            time.sleep(0.05)

    def listens(self) -> bool:
        """The socket exists a moment before."""
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.socket)) == 0

    def kill(self, by: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(by)
        self.process.wait(60)

    def memory(self) -> int:
        """Bytes of memory that the process uses."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@dataclass
class Box:
    """A sandbox with its guest, as the holder of its token reaches it."""

    sandbox: Sandbox
    token: str
    streams: Streams
    hold: LocalHold
    opened: list[WebSocketClient] = field(default_factory=list)
    others: list[Streams] = field(default_factory=list)

    def connect(
        self, token: str | None = None, end: str = "/ws", id: str = "", streams: Streams | None = None
    ) -> WebSocketClient:
        target = f"/s/{id or self.sandbox.pk}{end}?token={self.token if token is None else token}"
        self.opened.append(WebSocketClient((streams or self.streams).socket, target))
        assert self.opened[-1].expect("connected") == {"type": "connected"}
        return self.opened[-1]

    def another_process(self) -> Streams:
        """A second streams process, to the end of the test."""
        self.others.append(Streams(self.streams.helper, self.streams.folder, self.streams.log))
        return self.others[-1]

    def close(self) -> None:
        for other in self.others:
            other.kill()
        for client in self.opened:
            client.socket.close()
        self.hold.close()


@pytest.fixture(scope="module")
def streams(hold_program: Path, tmp_path_factory: pytest.TempPathFactory, django_db_setup: None) -> Iterator[Streams]:
    folder = tmp_path_factory.mktemp("streams")
    made = Streams(hold_program, folder / "holds", folder / "streams.log")
    yield made
    made.kill()
    end_program(hold_program)  # where a guest had ended, a client that was still there has started it again


@pytest.fixture
def box(transactional_db: None, api: Caller, streams: Streams) -> Iterator[Box]:
    sandbox, token = make_sandbox(
        api.account, status="running", ready=True, ip="10.0.0.2", control_port=22, ssh_host_key="ssh-ed25519 none"
    )
    hold = LocalHold(streams.helper, streams.folder / sandbox.workspace_id, linger=120.0)
    made = Box(sandbox, token, streams, hold)
    yield made
    made.close()
