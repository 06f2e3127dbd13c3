"""What the tests of the disk guard share: workspaces, and what their guests write."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.callers import Caller
from tests.fakehost import FakeHost

RESERVE = 64


def create(api: Caller) -> str:
    answer = api.post("/workspace", {"config": {"disk_size_mb": 64}})
    assert answer.status_code == 201, answer.content
    made: str = answer.json()["workspace"]["id"]
    return made


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def write_on_disk(vmhost: FakeHost, workspace_id: str, kilobytes: int) -> None:
    """What a guest writes, as the host's file system sees it."""
    with (vmhost.driver._store.directory(workspace_id) / "disk" / "content").open("ab") as file:
        file.write(b"x" * (kilobytes << 10))
