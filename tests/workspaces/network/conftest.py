"""What several tests of the network need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from workspaces import last_used
from workspaces.edge_auth.wake_coalescer import wake_coalescer
from workspaces.models import PublicPort
from workspaces.models.public_port import Access


@pytest.fixture
def public(api: Caller) -> Callable[..., PublicPort]:
    """A public port of a new workspace with these fields."""

    def new(**fields: Any) -> PublicPort:
        row = make_workspace(api.account, **{"ip": "10.200.0.9", "public_access": True, "published_ports": 1, **fields})
        return PublicPort.objects.create(workspace=row, port=8080)

    return new


@pytest.fixture
def private(public: Callable[..., PublicPort]) -> Callable[..., PublicPort]:
    """A private port of a new workspace with these fields."""

    def new(**fields: Any) -> PublicPort:
        made = public(**fields)
        made.access = Access.PRIVATE
        made.save()
        return made

    return new


@pytest.fixture
def fresh_edge_state() -> None:
    """No use recorded and no wake pending from an earlier test in this process."""
    last_used._recorded_at.clear()
    wake_coalescer.cache_clear()
