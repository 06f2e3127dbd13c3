"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.host_access.confined_host import ConfinedHost


@pytest.fixture
def confined(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfinedHost]:
    """A host in this process, whose threads have its own role in the database."""
    host = ConfinedHost(settings.STATE, monkeypatch)
    host.start()
    yield host
    host.stop()
