"""A host that is cut off from the platform, and comes back when a test says so."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import end_leases
from workspaces.host import runtime


@dataclass(frozen=True)
class CutOff:
    """The host of the tests, whose heartbeats are sent by hand."""

    host: FakeHost

    def leave(self) -> None:
        """Its lease is over, and no task reaches it."""
        self.host.settle()
        self.host.hold_tasks()
        end_leases()

    def come_back(self) -> None:
        """It reports, and its tasks reach it; what waits for it is carried out."""
        assert self.host.held_tasks is not None
        self.host.held_tasks.clear()  # they expired in its absence
        self.host.release_tasks()
        self.host.runtime.send_heartbeat()
        self.host.settle()


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> CutOff:
    monkeypatch.setattr(runtime, "HEARTBEAT_SECONDS", 3600.0)
    return CutOff(request.getfixturevalue("vmhost"))


@pytest.fixture
def made(api: Caller, cut_off: CutOff) -> str:
    """The id of a workspace that runs."""
    answer = api.post("/workspace", {"slug": "the-box", "mode": "permanent"})
    assert answer.status_code == 201, answer.content
    return str(answer.json()["workspace"]["id"])
