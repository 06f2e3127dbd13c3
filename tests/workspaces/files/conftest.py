"""One running workspace for the tests of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from vmbackend.backend import machines_dir


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """A running workspace, `the-box`."""
    return api.post("/workspace", {"slug": "the-box"}).json()["workspace"]["id"]


@pytest.fixture
def disk(made: str) -> Path:
    """Its file system, past the platform."""
    return machines_dir() / "directories" / made / "disk"
