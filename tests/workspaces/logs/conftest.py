"""A running workspace with logs, and streams with short intervals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from common.sse import leaders, runtime
from tests.callers import Caller
from tests.fakehost import FakeHost
from vmbackend.backend import machines_dir
from vmbackend.libvirt.bootlog import BootLog
from workspaces.logs import follow
from workspaces.streams import sources


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter intervals of polls, checks and retries."""
    monkeypatch.setattr(runtime, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(leaders, "RETRY_SECONDS", 0.1)
    for name in ("POLL_SECONDS", "BUSY_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(sources, name, 0.05)
    monkeypatch.setattr(follow, "RECHECK_SECONDS", 0.2)


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """The id of a running workspace, `the-box`, with a workload."""
    config = {"workloads": [{"name": "web", "cmd": ["true"]}]}
    made: str = api.post("/workspace", {"slug": "the-box", "config": config}).json()["workspace"]["id"]
    return made


@pytest.fixture
def console(made: str) -> Callable[[bytes], None]:
    """Writes to the machine's console log."""
    return BootLog(machines_dir() / "directories" / made / "boot.log", 1 << 20).append


@pytest.fixture
def log(made: str) -> Path:
    """The main program's log in the guest."""
    found = machines_dir() / "directories" / made / "disk/var/log/workspace/cmd.log"
    found.parent.mkdir(parents=True)
    return found
