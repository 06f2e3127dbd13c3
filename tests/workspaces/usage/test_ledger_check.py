"""`manage.py ledger_check` finds what was planted, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models import F
from django.test import Client
from django.utils import timezone

from common.snapshots import read_snapshot
from credits import holds, ledger
from credits.check_runs import LONGEST
from credits.entries import Purpose
from credits.ledger_check import Counts
from credits.models import Balance, Entry, EntryKind, Hold, LedgerCheck, Service, Spending
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.usage.test_charging import HOUR_NS, metered, records
from workspaces.charging import services as charging
from workspaces.charging.check import all_drifts, ledger_check_nightly
from workspaces.charging.records import SUMS
from workspaces.models import (
    BillingCycle,
    ChargePosition,
    CycleUsage,
    MeterRecord,
    NamespaceHour,
    NamespaceMinute,
    NamespaceTick,
    WorkspaceHour,
)

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
        holds.credits_hold(**common, amount=Decimal(1), key=key)
    holds.hold_settle(**common, key="a", amount=Decimal("0.25"))
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
    "hours": (lambda: WorkspaceHour.objects.update(credits=Decimal(2)), "its hours sum to 2"),
    "records": (lambda: MeterRecord.objects.update(cpu_time_ns=2 * HOUR_NS), "its records cost 6"),
    "amounts": (lambda: WorkspaceHour.objects.update(records=7), "of its hours differ"),
    "namespace hours": (lambda: NamespaceHour.objects.update(records=7), "by hours"),
    "minutes": (lambda: NamespaceMinute.objects.all().delete(), "by minutes"),
    "ticks": (lambda: NamespaceTick.objects.update(credits=Decimal(7)), "not the sums of their ticks"),
    "ticks of an hour": (lambda: NamespaceTick.objects.update(tick=F("tick") + 600 * 10**6), "of their ticks"),
    "cycle": (lambda: CycleUsage.objects.all().delete(), "billing cycles sum to 0"),
    "reported": (lambda: BillingCycle.objects.update(closed_at=timezone.now()), "1 workspaces of closed ones"),
    "unowned": (
        lambda: NamespaceHour.objects.create(namespace_id="ns_x", start=0, **dict.fromkeys(SUMS, 0)),
        "nothing was metered there",
    ),
    "a position after the records": (lambda: ChargePosition.objects.update(record_id=10**9), "never will be"),
    "position": (lambda: ChargePosition.objects.update(first_record_id=10**9), "charged 3"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_found(history: Namespace, name: str) -> None:
    plant, words = PLANTED[name]
    plant()
    *sentences, error = check()
    assert any(words in sentence for sentence in sentences)
    assert error.endswith("differences.")


def in_thread(work: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        try:
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_snapshot_sees_one_state_and_no_writer_waits_for_it(history: Namespace) -> None:
    with read_snapshot():
        before = Entry.objects.count()
        writer = in_thread(
            lambda: ledger.credits_charge(namespace=history, service=Service.AI, amount=Decimal(1), purpose=Purpose())
        )
        writer.join(10)
        assert not writer.is_alive()
        assert Entry.objects.count() == before
    assert Entry.objects.count() == before + 1


def test_nothing_is_written_in_a_snapshot(history: Namespace) -> None:
    with pytest.raises(Exception, match=r"read-?only"), read_snapshot():
        Balance.objects.update(used=Decimal(7))
    Balance.objects.filter(service="ai").update(used=Decimal(2))
    assert "agrees" in check()[0]


def test_a_snapshot_inside_of_a_transaction_is_refused(history: Namespace) -> None:
    with pytest.raises(RuntimeError), transaction.atomic(), read_snapshot():
        pass


def test_beside_running_charging_there_is_no_false_difference(history: Namespace) -> None:
    ended = threading.Event()

    def work() -> None:
        for number in range(200):
            if ended.is_set():
                return
            records(metered(history, f"ws_of_{number}"), 2, cpu_time_ns=HOUR_NS)
            charging.charge_metered()
            ledger.credits_refund(namespace=history, service=Service.SANDBOX, amount=Decimal(1), purpose=Purpose())

    thread = in_thread(work)
    try:
        found, read = list[str](), set[int]()
        while thread.is_alive() and len(read) < 8:
            counts = Counts()
            with read_snapshot():
                found += all_drifts(counts)
            read.add(counts.entries)
    finally:
        ended.set()
        thread.join()
    assert found == []
    assert len(read) > 2, "something was charged between the checks"


def test_the_result_of_a_check_is_kept(history: Namespace) -> None:
    check()
    Balance.objects.filter(service="ai").update(used=Decimal(3))
    check()
    worse, good = LedgerCheck.objects.all()
    assert (good.differences, good.sentences, good.records, good.balances) == (0, [], 3, 2)
    assert good.entries == Entry.objects.count()
    assert (worse.differences, len(worse.sentences)) == (1, 1)
    assert worse.finished_at
    assert worse.seconds is not None


def test_a_check_that_fails_says_so(history: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no disk")

    monkeypatch.setattr(connection, "chunked_cursor", fail)
    with pytest.raises(OSError, match="no disk"):
        check()
    row = LedgerCheck.objects.get()
    assert (row.differences, row.sentences) == (None, ["OSError: no disk"])
    assert row.finished_at


def test_the_nightly_check_is_made_once_a_night(history: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(day: int, hour: int) -> int | None:
        monkeypatch.setattr(timezone, "now", lambda: datetime(2026, 3, day, hour, tzinfo=UTC))
        return ledger_check_nightly()

    assert [at(1, 1), at(1, 2), at(1, 3), at(2, 0), at(2, 5)] == [None, 0, None, None, 0]
    assert LedgerCheck.objects.count() == 2


def test_a_nightly_check_whose_process_died_is_made_again(history: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 3, 1, 23, tzinfo=UTC)
    monkeypatch.setattr(timezone, "now", lambda: now)
    row = LedgerCheck.objects.create(night=now.date(), started_at=now - LONGEST + timedelta(minutes=1))
    assert ledger_check_nightly() is None
    LedgerCheck.objects.update(started_at=now - LONGEST - timedelta(minutes=1))
    assert [ledger_check_nightly() for _ in range(2)] == [0, None]
    row.refresh_from_db()
    assert (row.finished_at, row.differences) == (now, 0)


def test_staff_see_a_difference_on_every_page(history: Namespace, staff: Client) -> None:
    def pages() -> list[str]:
        return [staff.get(path).content.decode() for path in ("/admin/", "/admin/credits/ledgercheck/")]

    label = "The ledger has 1 differences"
    check()
    assert not any("The ledger" in page for page in pages())
    Balance.objects.filter(service="ai").update(used=Decimal(3))
    check()
    assert all(label in page for page in pages())
    Balance.objects.filter(service="ai").update(used=Decimal(2))
    check()
    assert not any(label in page for page in pages())
    LedgerCheck.objects.update(started_at=timezone.now() - timedelta(days=3))
    assert all("not checked for two days" in page for page in pages())
