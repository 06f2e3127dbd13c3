"""Keys of charges and holds belong to a balance: what one namespace calls its own meets nothing of another."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from credits import holds, ledger
from credits.entries import Purpose
from credits.models import Balance, Entry, Hold, Service
from namespaces.models import Namespace
from tests.callers import Caller

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "call-1"


@pytest.fixture
def places(api: Caller, stranger: Caller) -> list[dict[str, Any]]:
    mine, theirs = (Namespace.objects.get(account=caller.account) for caller in (api, stranger))
    return [
        {"namespace": mine, "service": Service.AI},
        {"namespace": mine, "service": Service.CDN},
        {"namespace": theirs, "service": Service.AI},
    ]


def test_one_key_charges_each_balance_once(places: list[dict[str, Any]]) -> None:
    for number, place in enumerate(places, 1):
        for _ in range(2):
            entry = ledger.credits_charge(**place, amount=Decimal(number), purpose=Purpose(KEY))
            assert (entry.amount, entry.balance.namespace_id) == (number, place["namespace"].pk)
    assert sorted(Balance.objects.values_list("used", flat=True)) == [1, 2, 3]


def test_one_key_refunds_each_balance_once(places: list[dict[str, Any]]) -> None:
    for place in places:
        ledger.credits_charge(**place, amount=Decimal(5), purpose=Purpose())
        for _ in range(2):
            ledger.credits_refund(**place, amount=Decimal(2), purpose=Purpose(KEY))
    assert set(Balance.objects.values_list("used", flat=True)) == {3}


def test_one_key_is_a_hold_of_each_balance(places: list[dict[str, Any]]) -> None:
    for number, place in enumerate(places, 1):
        assert holds.credits_hold(**place, amount=Decimal(number), key=KEY).amount == number
    assert Hold.objects.count() == 3
    first, second, third = places
    assert holds.hold_void(**first, key=KEY)
    entry = holds.hold_settle(**second, key=KEY, amount=Decimal("0.5"))
    assert entry is not None
    assert entry.balance.service == Service.CDN
    assert holds.hold_settle(**first, key=KEY, amount=Decimal(1)) is None
    assert holds.hold_settle(**second, key=KEY, amount=Decimal("0.5")) == entry
    assert Hold.objects.get().balance.namespace_id == third["namespace"].pk
    assert sorted(Balance.objects.values_list("used", "held")) == [(0, 0), (0, 3), (Decimal("0.5"), 0)]
    assert Entry.objects.count() == 1


def test_a_balance_that_spent_nothing_has_no_holds(places: list[dict[str, Any]]) -> None:
    assert holds.hold_settle(**places[0], key=KEY, amount=Decimal(1)) is None
    assert not holds.hold_void(**places[0], key=KEY)
    assert not Balance.objects.exists()
