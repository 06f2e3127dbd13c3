"""What several tests of the network need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from workspaces.models import PublicPort


@pytest.fixture
def public(api: Caller) -> Callable[..., PublicPort]:
    """A public port of a new workspace with these fields."""

    def new(**fields: Any) -> PublicPort:
        row = make_workspace(api.account, **{"ip": "10.200.0.9", "public_access": True, "published_ports": 1, **fields})
        return PublicPort.objects.create(workspace=row, port=8080)

    return new
