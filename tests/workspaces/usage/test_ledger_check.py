"""`manage.py ledger_check` finds what was planted, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from credits import ledger
from credits.ledger import Purpose
from credits.models import Balance, Entry, EntryKind, Hold, Service, Spending
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.usage.test_charging import HOUR_NS, metered, records
from workspaces.charging import services as charging
from workspaces.models import ChargePosition

pytestmark = pytest.mark.django_db(transaction=True)


def check() -> list[str]:
    """What it prints; the last line is the error where there is a difference."""
    out = StringIO()
    try:
        call_command("ledger_check", stdout=out)
    except CommandError as exc:
        return [*out.getvalue().splitlines(), str(exc)]
    return out.getvalue().splitlines()


@pytest.fixture
def history(api: Caller) -> Namespace:
    """Metered charges, a refund, holds, a reset."""
    default = Namespace.objects.get(account=api.account)
    records(metered(default), 3, cpu_time_ns=HOUR_NS)
    charging.charge_metered()
    common: dict[str, Any] = {"namespace": default, "service": Service.SANDBOX}
    ledger.credits_refund(**common, amount=Decimal("0.5"), purpose=Purpose())
    for key in ("a", "b"):
        ledger.credits_hold(**common, amount=Decimal(1), key=key)
    ledger.hold_settle(key="a", amount=Decimal("0.25"))
    ledger.quota_reset(**common, actor="staff")
    ledger.credits_charge(namespace=default, service=Service.AI, amount=Decimal(2), purpose=Purpose())
    return default


def test_what_the_services_write_agrees(history: Namespace) -> None:
    assert check() == ["The ledger agrees with balances, spending and metering records."]


def test_records_that_are_not_charged_yet_are_no_difference(history: Namespace) -> None:
    records(metered(history, "ws_9"), 2, cpu_time_ns=HOUR_NS)
    assert len(check()) == 1
    assert "agrees" in check()[0]


def planted_entry() -> None:
    balance = Balance.objects.get(service="ai")
    Entry.objects.create(balance=balance, kind=EntryKind.CHARGE, amount=Decimal(1), balance_after=Decimal(9))


PLANTED: dict[str, tuple[Callable[[], Any], str]] = {
    "used": (lambda: Balance.objects.filter(service="ai").update(used=Decimal(3)), "used is 3"),
    "held": (lambda: Balance.objects.filter(service="ai").update(held=Decimal(3)), "held is 3"),
    "hold": (lambda: Hold.objects.all().delete(), "held is 1"),
    "entry": (planted_entry, "the balance after it is 9"),
    "spending": (lambda: Spending.objects.filter(balance__service="ai").update(credits=Decimal(7)), "days sum to 7"),
    "position": (lambda: ChargePosition.objects.update(first_record_id=10**9), "charged 3"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_found(history: Namespace, name: str) -> None:
    plant, words = PLANTED[name]
    plant()
    *sentences, error = check()
    assert any(words in sentence for sentence in sentences)
    assert error.endswith("differences.")
