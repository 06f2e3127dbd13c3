"""A workspace for the sweep to find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from workspaces.models import Workspace
from workspaces.models.workspace import Mode
from workspaces.states import Status


@pytest.fixture
def machine(api: Caller, vmhost: FakeHost) -> Callable[..., Workspace]:
    """A temporary workspace at rest with its machine."""

    def make(status: Status = Status.RUNNING, **fields: Any) -> Workspace:
        fields = {"mode": Mode.TEMPORARY, "ttl_seconds": 3600, **fields}
        return fault_cases.machine(vmhost, api.account, status, **fields)

    return make
