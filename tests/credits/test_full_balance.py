"""A balance at the end of its column: the others are charged; what it has no room for is logged and dropped."""

from __future__ import annotations

import logging
import re
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from common.errors import Conflict
from credits import holds, ledger
from credits.amounts import MAX_CREDITS
from credits.entries import Purpose
from credits.models import MAX_QUOTA, Balance, Entry, EntryKind, Hold, OverdraftAction, Service
from namespaces.models import Namespace
from tests.callers import Caller
from tests.staff.pages import confirm
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


def drifts() -> list[str]:
    out = StringIO()
    try:
        call_command("ledger_check", stdout=out)
    except CommandError:
        return out.getvalue().splitlines()
    return []


def test_a_full_balance_stops_no_pass(full: Namespace, stranger: Caller, caplog: pytest.LogCaptureFixture) -> None:
    other = Namespace.objects.get(account=stranger.account)
    for tick in range(3):
        use(full, 2, tick)
        use(other, 1, tick, "ws_other")
        assert charging.charge_metered() == 2
    assert (used(other), used(full)) == (3, MAX_CREDITS)
    charges = Entry.objects.filter(kind=EntryKind.CHARGE, workspace_id="ws_1")
    assert [(entry.amount, entry.balance_after) for entry in charges] == [(1, MAX_CREDITS)]
    assert re.findall("(\\d) credits of ws_1 are not charged", caplog.text) == ["1", "2", "2"]
    sentences = drifts()
    assert sentences
    assert all(full.pk in sentence or "cycle" in sentence for sentence in sentences), "the others' money is right"


def test_what_is_used_after_a_reset_is_charged(full: Namespace) -> None:
    use(full, 2, 0)
    charging.charge_metered()
    ledger.quota_reset(namespace=full, service=Service.SANDBOX, actor="staff")
    use(full, 2, 1)
    charging.charge_metered()
    assert used(full) == 2


def test_staff_raise_a_quota_to_its_limit_at_most(api: Caller, staff: Client) -> None:
    namespace = Namespace.objects.get(account=api.account)
    common: dict[str, Any] = {"namespace": namespace, "service": Service.SANDBOX}
    ledger.quota_set(**common, limit=Decimal(1), overdraft=Decimal(0), action=OverdraftAction.BLOCK, thresholds=[])
    balance = Balance.objects.get()
    refused = confirm(staff, "credits/balance", "raise_quota", balance.pk, reason="why", limit=MAX_QUOTA + 1)
    assert b"less than or equal to 10000000" in refused.content
    assert Balance.objects.get().quota_limit == 1
    confirm(staff, "credits/balance", "raise_quota", balance.pk, reason="why", limit=MAX_QUOTA)
    assert Balance.objects.get().quota_limit == MAX_QUOTA


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
