"""A balance at the end of its column: others are charged all the same; what it has no room for waits, seen by staff."""

from __future__ import annotations

import logging
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from common.errors import Conflict
from credits import holds, ledger
from credits.amounts import MAX_CREDITS
from credits.entries import Purpose
from credits.models import Balance, Entry, EntryKind, Hold, Service, WaitingCharge
from credits.waiting_charges import waiting_charges_retry
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.usage.test_charging import HOUR_NS, TICK, metered, record
from workspaces.charging import services as charging

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def full(api: Caller) -> Namespace:
    """Its balance has room for one credit."""
    namespace = Namespace.objects.get(account=api.account)
    ledger.credits_charge(
        namespace=namespace, service=Service.SANDBOX, amount=MAX_CREDITS - 1, purpose=Purpose(description="By hand.")
    )
    return namespace


def use(namespace: Namespace, hours: int, tick: int, workspace: str = "ws_1") -> None:
    """Each CPU hour costs one credit."""
    record(metered(namespace, workspace), TICK + tick, cpu_time_ns=hours * HOUR_NS)


def used(namespace: Namespace) -> Decimal:
    return Balance.objects.get(namespace_id=namespace.pk).used


def assert_agrees() -> None:
    out = StringIO()
    call_command("ledger_check", stdout=out)


def test_a_full_balance_stops_no_pass(full: Namespace, stranger: Caller, caplog: pytest.LogCaptureFixture) -> None:
    other = Namespace.objects.get(account=stranger.account)
    for tick in range(3):
        use(full, 2, tick)
        use(other, 1, tick, "ws_other")
        assert charging.charge_metered() == 2
    assert (used(other), used(full)) == (3, MAX_CREDITS - 1)
    assert [(row.workspace_id, row.amount) for row in WaitingCharge.objects.all()] == [("ws_1", 2)] * 3
    assert caplog.text.count("no room in the balance") == 3
    assert_agrees()


def test_what_fits_is_charged_beside_what_does_not(full: Namespace) -> None:
    use(full, 2, 0, "ws_1")
    use(full, 1, 0, "ws_2")
    charging.charge_metered()
    assert used(full) == MAX_CREDITS
    assert WaitingCharge.objects.get().workspace_id == "ws_1"
    assert_agrees()


def test_what_waits_is_charged_once_there_is_room(full: Namespace) -> None:
    for tick in range(3):
        use(full, 2, tick)
        charging.charge_metered()
    assert waiting_charges_retry() == 0
    common: dict[str, Any] = {"namespace": full, "service": Service.SANDBOX}
    ledger.credits_refund(**common, amount=Decimal(2), purpose=Purpose())
    assert [waiting_charges_retry() for _ in range(2)] == [1, 0]
    assert (used(full), WaitingCharge.objects.count()) == (MAX_CREDITS - 1, 2)
    assert_agrees()
    ledger.quota_reset(**common, actor="staff")
    assert [waiting_charges_retry() for _ in range(2)] == [2, 0]
    assert (used(full), WaitingCharge.objects.count()) == (4, 0)
    assert_agrees()
    charges = Entry.objects.filter(kind=EntryKind.CHARGE, workspace_id="ws_1")
    assert [entry.amount for entry in charges] == [2, 2, 2]


def test_staff_see_what_waits_on_every_page(full: Namespace, staff: Client) -> None:
    use(full, 2, 0)
    charging.charge_metered()
    assert "A balance is full" in staff.get("/admin/").content.decode()
    assert "ws_1" in staff.get("/admin/credits/waitingcharge/").content.decode()
    ledger.quota_reset(namespace=full, service=Service.SANDBOX, actor="staff")
    waiting_charges_retry()
    assert "A balance is full" not in staff.get("/admin/").content.decode()


def test_a_settlement_without_room_is_a_conflict_that_leaves_the_hold(
    full: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    common: dict[str, Any] = {"namespace": full, "service": Service.SANDBOX, "key": "call"}
    holds.credits_hold(**common, amount=Decimal(1))
    with caplog.at_level(logging.ERROR), pytest.raises(Conflict):
        holds.hold_settle(**common, amount=Decimal(2))
    assert "2 credits of the hold 'call' are not charged" in caplog.text
    assert (Hold.objects.count(), used(full)) == (1, MAX_CREDITS - 1)
    entry = holds.hold_settle(**common, amount=Decimal(1))
    assert entry is not None
    assert (entry.balance_after, Hold.objects.count(), used(full)) == (MAX_CREDITS, 0, MAX_CREDITS)
