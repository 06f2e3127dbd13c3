"""Fixtures of the tests of requests to places that users name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outbound.outside import Authority, Outside, outside_world


@pytest.fixture
def outside(no_name_server: None) -> Iterator[Outside]:
    with outside_world() as world:
        yield world


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    """A CA that the client trusts."""
    made = Authority(tmp_path)
    with made.trusted():
        yield made
