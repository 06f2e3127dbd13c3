"""The nightly check of the ledger reads what is new since the last one that found nothing, and finds what differs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from credits import ledger
from credits.entries import Purpose
from credits.models import Balance, CheckedBalance, LedgerCheck, Service, Spending
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.usage.test_charging import HOUR_NS, metered, record
from tests.workspaces.usage.test_ledger_check import PLANTED
from workspaces.charging import services as charging
from workspaces.charging.billing import cycles_close
from workspaces.charging.check import ledger_check_by_hand, ledger_check_nightly
from workspaces.models import CheckPosition, MeterRecord, NamespaceHour, WorkspaceHour

pytestmark = pytest.mark.django_db(transaction=True)

PER_DAY = 12
SANDBOX, AI = Service.SANDBOX, Service.AI


class Days:
    """A simulated time in which a namespace is used."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.now = datetime(2026, 3, 1, 5, tzinfo=UTC)

    def pass_day(self) -> None:
        """Records on time and late ones, a charge, a closed cycle; then it is the next night."""
        for number in range(PER_DAY):
            self.now += timedelta(minutes=61)
            late = timedelta(hours=3) if number % 4 == 3 else timedelta(seconds=1)
            tick = int((self.now - late).timestamp()) * 10**6 + number
            record(metered(self.namespace, f"ws_{number % 3}"), tick, cpu_time_ns=HOUR_NS)
            charging.charge_metered()
        ledger.credits_charge(namespace=self.namespace, service=AI, amount=Decimal(2), purpose=Purpose())
        cycles_close()
        self.now = self.now.replace(hour=5) + timedelta(days=1)

    def check(self) -> tuple[int | None, LedgerCheck]:
        found = ledger_check_nightly()
        return found, LedgerCheck.objects.order_by("-pk")[0]


@pytest.fixture
def days(api: Caller, monkeypatch: pytest.MonkeyPatch) -> Days:
    made = Days(Namespace.objects.get(account=api.account))
    monkeypatch.setattr(timezone, "now", lambda: made.now)
    return made


def test_a_night_reads_what_is_new_whatever_the_history(days: Days) -> None:
    read = []
    for _ in range(6):
        days.pass_day()
        found, row = days.check()
        assert (found, row.differences, row.sentences) == (0, 0, [])
        read.append((row.is_full, row.entries, row.records))
    assert read[0] == (True, PER_DAY + 1, PER_DAY)
    assert {(is_full, entries) for is_full, entries, _ in read[1:]} == {(False, PER_DAY + 1)}
    # Those of the hour that was not over are read again.
    assert max(records for _, _, records in read[1:]) <= PER_DAY + 2
    assert MeterRecord.objects.count() == 6 * PER_DAY
    assert ledger_check_by_hand(print) == 0


def test_a_quiet_night_reads_no_entry(days: Days) -> None:
    days.pass_day()
    days.check()
    days.now += timedelta(days=1)
    found, row = days.check()
    assert (found, row.is_full, row.entries, row.balances) == (0, False, 0, 2)


@pytest.mark.parametrize("name", sorted(PLANTED.keys() - {"unowned"}))
def test_a_difference_in_what_is_new_is_found_in_the_night(days: Days, name: str) -> None:
    days.pass_day()
    assert days.check()[0] == 0
    days.pass_day()
    if name == "hold":
        Balance.objects.filter(service=SANDBOX).update(held=Decimal(1))
    elif name in ("cycle", "reported"):
        record(metered(days.namespace), int(days.now.timestamp()) * 10**6, cpu_time_ns=HOUR_NS)
        charging.charge_metered()
    PLANTED[name][0]()
    found, row = days.check()
    assert found
    assert row.is_full
    assert row.differences == found


def test_a_difference_keeps_every_night_full_until_it_is_corrected(days: Days) -> None:
    days.pass_day()
    assert days.check()[0] == 0
    Balance.objects.filter(service=AI).update(held=Decimal(3))
    for _ in range(2):
        days.pass_day()
        found, row = days.check()
        assert (found, row.is_full) == (1, True)
    Balance.objects.filter(service=AI).update(held=Decimal(0))
    days.pass_day()
    found, row = days.check()
    assert (found, row.is_full) == (0, False)


def test_what_was_found_right_before_is_compared_by_a_full_check_only(days: Days) -> None:
    for _ in range(2):
        days.pass_day()
        days.check()
    for model in (WorkspaceHour, NamespaceHour):
        rows: Any = model.objects.order_by("start")
        model.objects.filter(pk=rows[0].pk).update(records=7)
    Spending.objects.filter(pk=Spending.objects.order_by("day")[0].pk).update(credits=Decimal(7))
    days.pass_day()
    assert days.check()[0] == 0
    assert ledger_check_by_hand(print) > 0


def test_a_clock_that_was_ahead_makes_no_difference(days: Days) -> None:
    days.pass_day()
    assert days.check()[0] == 0
    before = days.now
    days.now += timedelta(days=3)
    days.pass_day()
    assert days.check()[0] == 0
    days.now = before + timedelta(hours=1)
    for is_full in (True, False):
        days.pass_day()
        LedgerCheck.objects.filter(night__gte=days.now.date()).delete()
        found, row = days.check()
        assert (found, row.is_full) == (0, is_full)


def test_a_check_by_hand_is_full_and_the_night_goes_on_after_it(days: Days) -> None:
    days.pass_day()
    assert ledger_check_by_hand(print) == 0
    assert (CheckPosition.objects.count(), CheckedBalance.objects.count()) == (1, 2)
    days.pass_day()
    found, row = days.check()
    assert (found, row.is_full, row.entries) == (0, False, PER_DAY + 1)


def test_a_position_that_is_wrong_is_followed_by_a_full_check(days: Days) -> None:
    days.pass_day()
    days.check()
    CheckPosition.objects.update(record_id=10**9)
    days.pass_day()
    found, row = days.check()
    assert (found, row.is_full) == (0, True)
