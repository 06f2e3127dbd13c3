"""What tests of workspaces have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from workspaces.commands.capacity import command_capacity


@pytest.fixture
def box(api: Caller, vmhost: FakeHost) -> Iterator[str]:
    """The id of a running workspace, `the-box`; no command has a place when the test ends."""
    yield api.post("/workspace", {"slug": "the-box"}).json()["workspace"]["id"]
    assert command_capacity().used == 0
