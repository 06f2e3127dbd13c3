"""Holds: credits that are put aside, settled or given back."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum
from django.utils import timezone

from common.errors import Conflict, QuotaExceeded
from credits import holds
from credits.models import Entry, Hold, QuotaDefault, Service
from namespaces.models import Namespace
from tests.callers import Caller
from tests.credits.test_ledger import at_once, balance, charge, default, hold, set_quota

__all__ = ["default"]
pytestmark = pytest.mark.django_db
SANDBOX = Service.SANDBOX


def test_a_hold_is_settled_with_what_it_really_cost(default: Namespace) -> None:
    set_quota(default, "10")
    hold(default, "8", "call-1")
    assert (balance(default).held, balance(default).used) == (8, 0)
    with pytest.raises(QuotaExceeded) as refused:
        hold(default, "3", "call-2")
    assert "8 credits are held" in refused.value.message
    assert refused.value.details == {
        "namespace": "default", "service": "sandbox", "quota_used": 0, "held": 8, "quota_limit": 10, "overdraft": 0,
    }  # fmt: skip
    for _ in range(2):
        entry = holds.hold_settle(namespace=default, service=SANDBOX, key="call-1", amount=Decimal("2.5"))
        assert entry is not None
        assert (entry.amount, balance(default).held, balance(default).used) == (Decimal("2.5"), 0, Decimal("2.5"))
    with pytest.raises(Conflict):
        hold(default, "8", "call-1")
    assert hold(default, "7.5", "call-3").amount == Decimal("7.5")


def test_a_hold_is_made_once_by_its_key_and_given_back_once(default: Namespace) -> None:
    set_quota(default, "10")
    assert hold(default, "8", "call") == hold(default, "8", "call")
    with pytest.raises(Conflict):
        hold(default, "7", "call")
    assert [holds.hold_void(namespace=default, service=SANDBOX, key="call") for _ in range(2)] == [True, False]
    assert balance(default).held == 0
    assert holds.hold_settle(namespace=default, service=SANDBOX, key="call", amount=Decimal(1)) is None
    assert balance(default).used == 0


def test_an_expired_hold_is_given_back(default: Namespace) -> None:
    hold(default, "8", "late", until=timezone.now() - timedelta(seconds=1))
    hold(default, "1", "in time")
    assert [holds.holds_expire() for _ in range(2)] == [1, 0]
    assert balance(default).held == 1


def test_a_key_that_is_held_again_while_the_sweep_runs_stays_held(default: Namespace) -> None:
    hold(default, "8", "call", until=timezone.now() - timedelta(seconds=1))
    statements = 0

    def interfere(run: Any, *statement: Any) -> Any:
        nonlocal statements
        statements += 1
        if statements == 2:  # the first has read what is due
            holds.hold_void(namespace=default, service=SANDBOX, key="call")
            hold(default, "3", "call")
        return run(*statement)

    with connection.execute_wrapper(interfere):
        assert holds.holds_expire() == 0
    assert (Hold.objects.get().amount, balance(default).held) == (3, 3)


def test_a_charge_that_was_made_already_sets_no_quota(api: Caller, default: Namespace) -> None:
    charge(default, "5", key="tick")
    QuotaDefault.objects.create(account_id=api.account.pk, service=SANDBOX, quota_limit=Decimal(1))
    charge(default, "5", key="tick")
    assert balance(default).quota_limit is None
    charge(default, "5", key="next")
    default.refresh_from_db()
    assert (balance(default).quota_limit, default.status) == (1, "suspended")


@pytest.mark.django_db(transaction=True)
def test_of_200_holds_at_once_with_room_for_one_exactly_one_succeeds(default: Namespace) -> None:
    set_quota(default, "10")
    outcomes = at_once(200, lambda number: hold(default, "10", f"call-{number}"))
    assert sorted(set(outcomes)) == ["CreditsUsedUp", "done"]
    assert (outcomes.count("done"), balance(default).held) == (1, 10)


@pytest.mark.django_db(transaction=True)
def test_charges_and_holds_at_once_lose_nothing(default: Namespace) -> None:
    def use(number: int) -> None:
        charge(default, "0.01", key=f"tick-{number % 50}")
        hold(default, "0.5", f"hold-{number}")
        if number % 2:
            holds.hold_settle(namespace=default, service=SANDBOX, key=f"hold-{number}", amount=Decimal("0.25"))
        else:
            holds.hold_void(namespace=default, service=SANDBOX, key=f"hold-{number}")

    assert set(at_once(100, use)) == {"done"}
    assert (balance(default).used, balance(default).held) == (Decimal("0.01") * 50 + Decimal("0.25") * 50, 0)
    last = Entry.objects.order_by("-id")[0]
    assert last.balance_after == balance(default).used
    assert Entry.objects.aggregate(sum=Sum("amount"))["sum"] == balance(default).used
