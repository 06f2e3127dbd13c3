"""Holds and settlements of many threads on one balance: nothing is lost, and each threshold is announced once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from itertools import accumulate, repeat
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from common.errors import QuotaExceeded
from common.snapshots import read_snapshot
from credits import holds, ledger
from credits.entries import Purpose
from credits.ledger_check import Counts
from credits.models import Balance, Entry, Hold, QuotaDefault, Service, Spending
from namespaces.models import Namespace
from tests.callers import Caller
from tests.webhooks.outbox import passed_thresholds, subscribe
from workspaces.charging.check import all_drifts

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 12


@pytest.fixture
def common(api: Caller) -> dict[str, Any]:
    return {"namespace": Namespace.objects.get(account=api.account), "service": Service.AI}


def at_once(work: Any, count: int) -> list[Any]:
    """What `work(number)` returned or raised, for each number."""

    def run(number: int) -> Any:
        try:
            return work(number)
        except Exception as exc:
            return exc
        finally:
            connection.close()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(count)))


def drifts() -> list[str]:
    with read_snapshot():
        return list(all_drifts(Counts()))


def test_settlements_at_once_lose_nothing_and_announce_each_threshold_once(api: Caller, common: dict[str, Any]) -> None:
    subscribe(api.account)
    ledger.quota_set(**common, limit=Decimal(48), overdraft=Decimal(60), action="block", thresholds=[25, 50, 100, 200])

    def work(number: int) -> None:
        holds.credits_hold(**common, amount=Decimal(1), key=f"k{number}")
        entry = holds.hold_settle(**common, key=f"k{number}", amount=Decimal("0.5"))
        assert entry is not None
        again = holds.hold_settle(**common, key=f"k{number}", amount=Decimal("0.5"))
        assert again == entry

    assert at_once(work, 100) == [None] * 100
    row = Balance.objects.get(service=Service.AI)
    assert (row.used, row.held, row.last_threshold_fired) == (50, 0, 100)
    assert passed_thresholds(api.account) == [25, 50, 100]
    after = list(Entry.objects.order_by("balance_after").values_list("balance_after", flat=True))
    assert after == list(accumulate(repeat(Decimal("0.5"), 100)))
    assert (Spending.objects.get().credits, Spending.objects.get().requests) == (50, 100)
    assert not Hold.objects.exists()
    assert drifts() == []


def test_the_entry_of_a_settlement_is_the_row_that_was_written(common: dict[str, Any]) -> None:
    """With and without something to announce."""
    purpose = Purpose(workspace_id="ws_1", description="x" * 300)
    for key, limit in (("quiet", 100), ("loud", 1)):
        ledger.quota_set(**common, limit=Decimal(limit), overdraft=Decimal(9), action="block", thresholds=[50])
        held = holds.credits_hold(**common, amount=Decimal(2), key=key)
        assert Hold.objects.get() == held
        assert (held.balance.held, held.amount) == (2, 2)
        entry = holds.hold_settle(**common, key=key, amount=Decimal(1), purpose=purpose)
        assert entry is not None
        stored = Entry.objects.get(key=holds.hold_entry_key(key))
        for field in Entry._meta.concrete_fields:
            assert getattr(entry, field.attname) == getattr(stored, field.attname), field.attname


def test_of_a_settlement_and_an_expiry_at_once_one_counts(common: dict[str, Any]) -> None:
    past = timezone.now() - timedelta(seconds=1)
    keys = [f"k{number}" for number in range(40)]
    for key in keys:
        holds.credits_hold(**common, amount=Decimal(1), key=key, until=past)

    def work(number: int) -> Any:
        if number % 2:
            return holds.holds_expire()
        return holds.hold_settle(**common, key=keys[number // 2], amount=Decimal(1))

    found = at_once(work, 80)
    assert not [each for each in found if isinstance(each, Exception)]
    row = Balance.objects.get(service=Service.AI)
    assert row.held == 0
    assert row.used == Entry.objects.count() == sum(isinstance(each, Entry) for each in found)
    assert sum(each for each in found if isinstance(each, int)) == 40 - row.used
    assert drifts() == []


def test_one_key_at_once_is_held_and_settled_once(common: dict[str, Any]) -> None:
    def work(number: int) -> Any:
        holds.credits_hold(**common, amount=Decimal(1), key=f"k{number % 5}")
        return holds.hold_settle(**common, key=f"k{number % 5}", amount=Decimal(1))

    at_once(work, 60)
    row = Balance.objects.get(service=Service.AI)
    assert (row.used, row.held, Entry.objects.count()) == (5, 0, 5)
    assert drifts() == []


def test_a_hold_inside_of_a_transaction_that_is_undone_holds_nothing(common: dict[str, Any]) -> None:
    with transaction.atomic():
        holds.credits_hold(**common, amount=Decimal(1), key="a")
        holds.hold_settle(**common, key="a", amount=Decimal(1))
        holds.credits_hold(**common, amount=Decimal(1), key="b")
        transaction.set_rollback(True)
    assert not Entry.objects.exists()
    assert not Hold.objects.exists()


def test_a_default_quota_is_applied_by_the_first_hold(api: Caller, common: dict[str, Any]) -> None:
    ledger.credits_charge(**common, amount=Decimal(1), purpose=Purpose())
    QuotaDefault.objects.create(account_id=api.account.pk, service=Service.AI, quota_limit=Decimal(2))
    holds.credits_hold(**common, amount=Decimal(1), key="a")
    assert Balance.objects.get().quota_limit == 2
    with pytest.raises(QuotaExceeded):
        holds.credits_hold(**common, amount=Decimal(1), key="b")
