"""Credits for what was metered: each record once, whatever dies, is late or runs twice."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext

from accounts.models import Account
from credits import ledger
from credits.models import Balance, Entry, QuotaDefault, Rate, Service, Spending, Unit
from credits.prices import PriceTable
from namespaces.models import Namespace
from tests.callers import Caller
from workspaces.charging import services as charging
from workspaces.models import ChargePosition, Metered, MeterRecord

pytestmark = pytest.mark.django_db(transaction=True)

HOUR_NS, GB_HOUR = 3600 * 10**9, 1024 * 3600 * 1000
MICRO = 10**6
TICK = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * MICRO


@pytest.fixture
def default(api: Caller) -> Namespace:
    return Namespace.objects.get(account=api.account)


def metered(namespace: Namespace, workspace: str = "ws_1") -> Metered:
    return Metered.objects.get_or_create(
        workspace_id=workspace, namespace_id=namespace.pk, account_id=namespace.account_id
    )[0]


def record(owner: Metered, tick: int = TICK, **amounts: int) -> MeterRecord:
    return MeterRecord.objects.create(
        metered=owner,
        tick=tick,
        period_ms=60000,
        **{"cpu_time_ns": 0, "memory_mb_ms": 0, "disk_bytes": 0, "network_bytes": 0, **amounts},
    )


def records(owner: Metered, count: int, **amounts: int) -> None:
    for number in range(count):
        record(owner, TICK + number * 60 * MICRO, **amounts)


def used(namespace: Namespace) -> Decimal:
    return Balance.objects.get(namespace_id=namespace.pk, service=Service.SANDBOX).used


def test_what_was_metered_is_charged_once(default: Namespace) -> None:
    record(metered(default), cpu_time_ns=HOUR_NS // 2, memory_mb_ms=GB_HOUR, disk_bytes=10**9, network_bytes=5 * 10**8)
    assert [charging.charge_metered() for _ in range(3)] == [1, 0, 0]
    entry = Entry.objects.get()
    assert entry.amount == entry.balance_after == used(default) == Decimal("0.5") + Decimal("0.5") + Decimal("0.06")
    assert (entry.workspace_id, entry.balance.account_id) == ("ws_1", default.account_id)
    assert Spending.objects.get().credits == entry.amount


def test_each_record_has_the_price_of_its_tick(default: Namespace) -> None:
    Rate.objects.create(
        unit=Unit.VCPU_HOUR, credits=Decimal("7"), effective_from=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=1)
    )
    owner = metered(default)
    for tick in (TICK, TICK + 3600 * MICRO - 1, TICK + 3600 * MICRO):
        record(owner, tick, cpu_time_ns=HOUR_NS)
    charging.charge_metered()
    assert used(default) == 1 + 1 + 7


def test_a_price_is_rounded_once_and_half_to_even(db: None) -> None:
    rates = [Rate(unit=Unit.DISK_GB, credits=Decimal("0.00000001"), effective_from=datetime(2000, 1, 1, tzinfo=UTC))]
    table = PriceTable(rates)
    half = 10**9 // 2
    assert [table.price(TICK, 0, 0, n * half, 0) * 10**8 for n in (0, 1, 2, 3, 5)] == [0, 0, 1, 2, 2]
    assert table.price(TICK, 0, 0, half + 1, 0) == Decimal("0.00000001")
    assert table.price(-1, 0, 0, half, 0) == 0


def test_what_costs_nothing_has_no_entry(default: Namespace) -> None:
    record(metered(default))
    assert charging.charge_metered() == 1
    assert not Entry.objects.exists()
    assert ChargePosition.objects.get().record_id == MeterRecord.objects.get().pk


def test_one_pass_writes_an_entry_for_each_workspace(default: Namespace, stranger: Caller) -> None:
    theirs = Namespace.objects.get(account=stranger.account)
    for owner in (metered(default), metered(default, "ws_2"), metered(theirs, "ws_3")):
        records(owner, 3, cpu_time_ns=HOUR_NS)
    assert charging.charge_metered() == 9
    found = Entry.objects.order_by("id").values_list("workspace_id", "amount", "balance_after")
    assert sorted(found) == [("ws_1", 3, 3), ("ws_2", 3, 6), ("ws_3", 3, 3)]
    assert (used(default), used(theirs)) == (6, 3)
    assert Spending.objects.get(balance__namespace_id=default.pk).requests == 2


def test_a_workspace_that_moved_is_charged_where_it_was(api: Caller, default: Namespace) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    for namespace in (default, other):
        record(metered(namespace), cpu_time_ns=HOUR_NS)
    charging.charge_metered()
    assert (used(default), used(other)) == (1, 1)


def test_a_deleted_namespace_and_account_are_charged_all_the_same(stranger: Caller) -> None:
    gone = Namespace.objects.get(account=stranger.account)
    record(metered(gone), cpu_time_ns=HOUR_NS)
    Account.objects.filter(pk=stranger.account.pk).delete()
    charging.charge_metered()
    assert used(gone) == 1


def test_a_pass_that_dies_before_its_commit_has_charged_nothing(
    default: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    records(metered(default), 2, cpu_time_ns=HOUR_NS)
    for step in ("_add_spending", "_write_entries", "_apply_defaults"):
        with monkeypatch.context() as patched:

            def die(*_: Any) -> None:
                raise KeyboardInterrupt

            patched.setattr(f"credits.metered_charges.{step}", die)
            with pytest.raises(KeyboardInterrupt):
                charging.charge_metered()
        assert not Entry.objects.exists()
    assert charging.charge_metered() == 2
    assert used(default) == 2


def test_batches_follow_one_another(default: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charging, "BATCH", 3)
    records(metered(default), 8, cpu_time_ns=HOUR_NS)
    assert charging.charge_metered() == 8
    assert (used(default), Entry.objects.count()) == (8, 3)


def test_two_passes_at_once_charge_each_record_once(default: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charging, "BATCH", 10)
    records(metered(default), 100, cpu_time_ns=HOUR_NS)

    def work() -> None:
        try:
            charging.charge_metered()
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    charging.charge_metered()
    assert used(default) == 100
    assert Entry.objects.aggregate(sum=Sum("amount"))["sum"] == 100


@pytest.fixture
def slow_writer(default: Namespace) -> Iterator[threading.Event]:
    """A transaction that has written a record and commits when the event is set."""
    owner = metered(default)
    wrote, commit = threading.Event(), threading.Event()

    def work() -> None:
        try:
            with transaction.atomic():
                record(owner, TICK, cpu_time_ns=HOUR_NS)
                wrote.set()
                commit.wait(20)
        finally:
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    assert wrote.wait(120)
    yield commit
    commit.set()
    thread.join()


def test_a_record_whose_writer_is_slow_is_charged_once(default: Namespace, slow_writer: threading.Event) -> None:
    record(metered(default, "ws_2"), TICK + 1, cpu_time_ns=HOUR_NS)
    assert [charging.charge_metered() for _ in range(2)] == [0, 0], "its number is lower than the visible one's"
    slow_writer.set()
    for _ in range(100):
        if charging.charge_metered():
            break
    assert used(default) == 2
    assert charging.charge_metered() == 0


def test_a_vacuum_of_the_records_does_not_hold_up_charging(default: Namespace) -> None:
    record(metered(default), TICK, cpu_time_ns=HOUR_NS)
    began, end = threading.Event(), threading.Event()

    def vacuum() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"LOCK TABLE {MeterRecord._meta.db_table} IN SHARE UPDATE EXCLUSIVE MODE")
                began.set()
                end.wait(20)
        finally:
            connection.close()

    thread = threading.Thread(target=vacuum)
    thread.start()
    try:
        assert began.wait(120)
        assert charging.charge_metered() == 1
    finally:
        end.set()
        thread.join()


def test_a_tick_that_comes_after_a_reset_counts_in_the_new_period(default: Namespace) -> None:
    record(metered(default), TICK, cpu_time_ns=HOUR_NS)
    charging.charge_metered()
    ledger.quota_reset(namespace=default, service=Service.SANDBOX, actor="a")
    record(metered(default), TICK - MICRO, cpu_time_ns=2 * HOUR_NS)
    charging.charge_metered()
    assert used(default) == 2


def test_a_default_quota_is_set_and_the_hard_block_suspends(api: Caller, default: Namespace) -> None:
    QuotaDefault.objects.create(account_id=api.account.pk, service=Service.SANDBOX, quota_limit=Decimal(2))
    records(metered(default), 3, cpu_time_ns=HOUR_NS)
    charging.charge_metered()
    default.refresh_from_db()
    assert (default.status, default.suspended_by_quota) == ("suspended", True)
    assert Balance.objects.get().quota_limit == 2


def test_a_batch_that_waited_too_long_is_repeated(default: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of a time that is over may have been read since it began."""
    record(metered(default), cpu_time_ns=HOUR_NS)
    with monkeypatch.context() as patched:
        patched.setattr(charging, "MAX_SECONDS", -1.0)
        assert charging.charge_metered() == 0
    assert not Entry.objects.exists()
    assert charging.charge_metered() == 1


def statements() -> int:
    """Of a pass of charging, without transactions, locks of tables and bulk inserts."""
    with CaptureQueriesContext(connection) as captured:
        assert charging.charge_metered()
    asked = [re.sub(r"^\d+ times: ", "", query["sql"]) for query in captured]  # one call of the library
    other = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "SET", "SELECT pg_advisory", "INSERT")
    return sum(not sql.startswith(other) for sql in asked)


def test_a_pass_costs_the_same_statements_for_few_and_for_many(api: Caller, default: Namespace) -> None:
    counts = []
    for tick, workspaces in enumerate((1, 2, 60)):
        for number in range(workspaces):
            record(metered(default, f"ws_{number}"), TICK + tick, cpu_time_ns=HOUR_NS)
        counts.append(statements())
    assert counts[1] == counts[2] <= 8


def test_a_pass_costs_the_same_statements_for_few_and_for_many_blocked_namespaces(api: Caller) -> None:
    """The first pass of each suspends them, the second finds them suspended, and the third those that staff lifted."""
    record(metered(Namespace.objects.get(account=api.account)))
    charging.charge_metered()
    counts = []
    for count in (2, 30):
        found = [Namespace.objects.create(account=api.account, name="n", slug=f"n-{count}-{n}") for n in range(count)]
        for namespace in found:
            ledger.quota_set(
                namespace=namespace, service=Service.SANDBOX, limit=Decimal(1), overdraft=Decimal(0), action="block",
                thresholds=[50],
            )  # fmt: skip
        of_each = []
        for number in range(3):
            for namespace in found:
                record(metered(namespace), TICK + number, cpu_time_ns=2 * HOUR_NS)
            of_each.append(statements())
            mine = Namespace.objects.filter(pk__in=[namespace.pk for namespace in found])
            assert set(mine.values_list("status", "suspended_by_quota")) == {("suspended", True)}
            if number == 1:
                mine.update(suspended_by_quota=False, status="active")
        counts.append(of_each)
    assert counts[0] == counts[1]
    assert counts[0][1] <= 8
