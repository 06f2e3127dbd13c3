"""How much a run tests: shares of the campaigns."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from tests.run_extent import leave_out_other_shares


def made(name: str, *, campaign: bool) -> Any:
    item = Mock(nodeid=name)
    item.get_closest_marker.return_value = pytest.mark.campaign if campaign else None
    return item


def test_each_campaign_is_in_one_share_and_every_other_test_in_all() -> None:
    campaigns = [made(f"tests/a.py::test[{number}]", campaign=True) for number in range(300)]
    others = [made(f"tests/b.py::test[{number}]", campaign=False) for number in range(10)]
    shares = []
    for number in (1, 2, 3):
        items = [*campaigns, *others]
        leave_out_other_shares(items, f"{number}/3")
        assert items[-10:] == others
        shares.append(items[:-10])
    assert sorted(item.nodeid for share in shares for item in share) == sorted(item.nodeid for item in campaigns)
    assert all(70 < len(share) < 130 for share in shares)


def test_without_a_share_there_are_all() -> None:
    items = [made("tests/a.py::test", campaign=True)]
    leave_out_other_shares(items, "")
    assert len(items) == 1
