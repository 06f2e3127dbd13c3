"""A running workspace with something on its disk and in its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from workspaces.models import Snapshot


@dataclass
class Parent:
    """A running workspace, of which snapshots are made. Calls are answered by `api`."""

    api: Caller
    vmhost: FakeHost
    id: str

    def run(self, command: str, workspace: str = "") -> str:
        answer = self.api.post(f"/workspace/{workspace or self.id}/exec", {"cmd": command})
        assert answer.status_code == 200, answer.json()
        text: str = answer.json()["stdout"].strip()
        return text

    def set_state(self, text: str) -> None:
        """Write to the disk and to the memory."""
        self.run(f"echo {text} > note")
        self.vmhost.driver.set_memory(self.id, text)

    def state(self, workspace: str = "") -> tuple[str, str]:
        """The contents of disk and memory."""
        return self.run("cat note", workspace), self.vmhost.driver.memory_of(workspace or self.id)

    def keep(self, status: int = 201, **body: Any) -> dict[str, Any]:
        answer = self.api.post(f"/workspace/{self.id}/snapshot", body)
        assert answer.status_code == status, answer.json()
        made: dict[str, Any] = answer.json()["snapshot"]
        return made

    def create(self, **body: Any) -> dict[str, Any]:
        answer = self.api.post("/workspace", body)
        assert answer.status_code == 201, answer.json()
        made: dict[str, Any] = answer.json()["workspace"]
        return made

    def stored(self) -> set[str]:
        """The snapshots of the store, once all tasks have run."""
        self.vmhost.settle()
        return set(self.vmhost.driver.inventory().snapshots)

    def end(self) -> None:
        """Remove all snapshots, which the host of the next test would find."""
        for key in self.stored():
            self.vmhost.driver.remove_snapshot(key)
        Snapshot.objects.all().delete()


@pytest.fixture
def parent(api: Caller, vmhost: FakeHost) -> Any:
    made = api.post("/workspace", {"name": "parent"})
    found = Parent(api, vmhost, made.json()["workspace"]["id"])
    found.set_state("first")
    yield found
    found.end()
