"""What tests of the command line have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.cli.runner import Ws
from tests.clients.scripted_server import Script


@pytest.fixture
def ws(server: Script, tmp_path: Path) -> Ws:
    """The command line with a token of that service, whose workspaces have no runtime, and an empty configuration."""
    server.by_path["/runtime-api-access/token"] = []
    return Ws(tmp_path / "config", {"MICROVM_URL": server.url, "MICROVM_TOKEN": "the-token"})
