"""How much a run tests: `make test` leaves out campaigns and shortens others; docs/testing.md has both."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

# `make test-all` sets TEST_ALL and so has the long versions.
WHOLE = bool(os.environ.get("TEST_ALL"))


def number_of(name: str, some: int, whole: int) -> int:
    """How often a test repeats something: as the environment says, else a few times, or many of `make test-all`."""
    return int(os.environ.get(name) or (whole if WHOLE else some))


def campaign_after(count: int, values: Iterable[Any]) -> list[Any]:
    """Values for `parametrize`, of which those after the first `count` have the mark `campaign`."""
    listed = list(values)
    return listed[:count] + [pytest.param(each, marks=pytest.mark.campaign) for each in listed[count:]]
