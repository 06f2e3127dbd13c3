"""A workspace on the first of two hosts, with something on its disk and in its memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.conf import settings

from tests.callers import Caller
from tests.threads import wait_until
from tests.workspaces.moves.pair import SUBNET, PairOfHosts
from vmbackend.models import Host
from workspaces.host.moved import settle_moves
from workspaces.models import Arrival, Move, Operation, Workspace
from workspaces.models.move import MoveState
from workspaces.models.operation import LIVE
from workspaces.moves.services import MoveRequest, workspace_move

NOTE = "what it wrote"


@dataclass
class Moving:
    """A workspace, and both hosts."""

    api: Caller
    hosts: PairOfHosts
    id: str

    @property
    def row(self) -> Workspace:
        return Workspace.objects.select_related("account__plan", "host", "namespace").get(pk=self.id)

    @property
    def second(self) -> Host:
        return Host.objects.get(pk=self.hosts.second.host_id)

    @property
    def move(self) -> Move:
        return Move.objects.select_related("arrival").latest("created_at")

    def begin(self, **asked: Any) -> Move:
        """Request a move to the second host."""
        request = MoveRequest("rack 3 is hot", **{"to": self.second, **asked})
        return workspace_move(workspace=self.row, asked=request, actor="staff ada")

    def finish(self) -> Move:
        """Wait until the move has ended, the workspace rests or runs, and both hosts are done with it."""
        wait_until(self._is_over, 60)
        self.hosts.settle_across_deaths()
        for runtime in (self.hosts.runtime, self.hosts.second):
            settle_moves(runtime)
        assert not Move.objects.filter(left_at=None).exists()
        assert not Arrival.objects.filter(settled_at=None).exists()
        return self.move

    def _is_over(self) -> bool:
        if any(task.done() and task.exception() for task in self.hosts.submitted):
            self.hosts.settle_across_deaths()
        live = Operation.objects.filter(workspace_id=self.id, state__in=LIVE)
        return not Move.objects.filter(state=MoveState.LIVE).exists() and not live.exists()

    def write(self) -> None:
        """Write to the disk and, if it has one, to the memory."""
        (self.hosts.driver._store.directory(self.id) / "disk" / "note").write_text(NOTE)
        self.hosts.driver.set_memory(self.id, NOTE)

    def found(self) -> tuple[str, str]:
        """Return disk and memory where the workspace is now."""
        is_second = self.row.host_id == self.hosts.second.host_id
        driver = self.hosts.second_driver if is_second else self.hosts.driver
        return (driver._store.directory(self.id) / "disk" / "note").read_text(), driver.memory_of(self.id)


@pytest.fixture
def hosts(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[PairOfHosts]:
    pair = PairOfHosts(settings.STATE, monkeypatch)
    pair.start()
    yield pair
    pair.stop()


@pytest.fixture
def moving(api: Caller, hosts: PairOfHosts) -> Moving:
    """A workspace that runs on the first host."""
    Host.objects.filter(pk=hosts.second.host_id).update(memory_mb=0)  # so that it is placed on the first
    answer = api.post("/workspace", {"name": "box", "mode": "permanent", "image": "localhost/tiny:1"})
    assert answer.status_code == 201, answer.content
    made = Moving(api, hosts, answer.json()["workspace"]["id"])
    hosts.second.send_heartbeat()
    Host.objects.update(transfer_key="ssh-ed25519 x")
    made.write()
    assert (made.row.host_id, made.second.subnet) == (hosts.runtime.host_id, SUBNET)
    return made
