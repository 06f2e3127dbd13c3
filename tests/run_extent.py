"""How much a run tests: `make test` leaves out campaigns and shortens others; docs/testing.md has both."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from typing import Any

import pytest

# `make test-all` sets TEST_ALL and so has the long versions.
WHOLE = bool(os.environ.get("TEST_ALL"))
# One of equal shares of the campaigns, as `.ci/run` has it: `2/3` is the second of three. Empty: all of them.
SHARE = os.environ.get("CAMPAIGN_SHARE", "")


def leave_out_other_shares(items: list[pytest.Item], share: str = SHARE) -> None:
    """Take the campaigns of other shares out of `items`; which share a test has, its name says."""
    if not share:
        return
    number, of = map(int, share.split("/"))
    others = [
        item
        for item in items
        if item.get_closest_marker("campaign") and zlib.crc32(item.nodeid.encode()) % of != number - 1
    ]
    if others:
        others[0].config.hook.pytest_deselected(items=others)
        left = set(others)
        items[:] = [item for item in items if item not in left]


def number_of(name: str, some: int, whole: int) -> int:
    """How often a test repeats something: as the environment says, else a few times, or many of `make test-all`."""
    return int(os.environ.get(name) or (whole if WHOLE else some))


def campaign_after(count: int, values: Iterable[Any]) -> list[Any]:
    """Values for `parametrize`, of which those after the first `count` have the mark `campaign`."""
    listed = list(values)
    return listed[:count] + [pytest.param(each, marks=pytest.mark.campaign) for each in listed[count:]]
