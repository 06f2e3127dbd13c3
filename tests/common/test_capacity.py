"""Places for work that lasts, over all accounts and for each one."""

from __future__ import annotations

import pytest

from common.capacity import AccountCapacity, CapacityUsedUp


def test_no_account_takes_every_place() -> None:
    capacity = AccountCapacity(total=3, per_account=2)
    with capacity.reserve("a"), capacity.reserve("a"):
        with pytest.raises(CapacityUsedUp) as refused, capacity.reserve("a"):
            pass
        assert refused.value.own
        with capacity.reserve("b"), pytest.raises(CapacityUsedUp) as refused, capacity.reserve("c"):
            pass
        assert not refused.value.own
        with capacity.reserve("c"):
            assert capacity.used == 3
    assert capacity.used == 0
