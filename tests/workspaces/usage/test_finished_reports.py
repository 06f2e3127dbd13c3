"""A report of a range that ended ten minutes ago answers the same for ever, also while a pass takes long to commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.usage.test_charging import HOUR_NS, metered, record
from workspaces.charging import services as charging
from workspaces.charging.hours import LATE
from workspaces.charging.selectors import usage_units
from workspaces.models import ChargePosition

pytestmark = pytest.mark.django_db(transaction=True)

MICRO = 10**6
BEGUN = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    """As all processes show it."""

    now = BEGUN


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timezone, "now", lambda: made.now)
    return made


@pytest.fixture
def default(api: Caller) -> Namespace:
    return Namespace.objects.get(account=api.account)


def microseconds(moment: datetime) -> int:
    return int(moment.timestamp()) * MICRO


def use(namespace: Namespace, moment: datetime) -> None:
    record(metered(namespace), microseconds(moment), cpu_time_ns=HOUR_NS)


def used_until(namespace: Namespace, end: datetime) -> int:
    return usage_units(namespace.pk, microseconds(end - timedelta(days=1)), microseconds(end), by_day=True)[1].records


@contextmanager
def stalled_pass() -> Iterator[threading.Event]:
    """Charges, and commits once the event is set, or at the end."""
    written, commit = threading.Event(), threading.Event()

    def work() -> None:
        try:
            with transaction.atomic():
                charging.charge_metered()
                written.set()
                commit.wait(60)
        finally:
            written.set()
            connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    written.wait(60)
    try:
        yield commit
    finally:
        commit.set()
        thread.join()


def test_a_pass_that_takes_long_to_commit_changes_no_report(default: Namespace, clock: Clock) -> None:
    """Its record counts nine minutes before it began, in a range that is over before it commits."""
    use(default, BEGUN - timedelta(minutes=20))
    end = BEGUN - LATE + timedelta(seconds=1)
    answers: list[int] = []

    def report() -> None:
        try:
            answers.append(used_until(default, end))
        finally:
            connection.close()

    with stalled_pass() as commit:
        clock.now = end + timedelta(minutes=10)
        reader = threading.Thread(target=report)
        reader.start()
        reader.join(1)  # it has answered, or waits for the commit
        commit.set()
        reader.join()
    assert answers == [used_until(default, end)] == [1]


def test_a_report_before_what_a_pass_may_count_waits_for_none(default: Namespace, clock: Clock) -> None:
    use(default, BEGUN - timedelta(minutes=1))
    charging.charge_metered()
    end = BEGUN - LATE
    assert ChargePosition.objects.get().counted_from == microseconds(end)
    clock.now = BEGUN + timedelta(minutes=5)
    use(default, BEGUN - timedelta(hours=1))
    with stalled_pass():
        assert used_until(default, end) == 0
    assert used_until(default, end) == 0


def test_a_report_that_is_not_over_waits_for_no_pass(default: Namespace, clock: Clock) -> None:
    use(default, BEGUN - timedelta(minutes=1))
    with stalled_pass():
        assert used_until(default, BEGUN) == 0
    assert used_until(default, BEGUN) == 1


def test_without_passes_a_report_is_answered(default: Namespace, clock: Clock) -> None:
    assert used_until(default, BEGUN - timedelta(days=1)) == 0
