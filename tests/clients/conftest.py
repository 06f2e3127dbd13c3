"""What tests of the clients have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.scripted_server import Script, scripted_server


@pytest.fixture
def server() -> Iterator[Script]:
    """A service that answers what the test wants."""
    with scripted_server() as script:
        yield script
