"""A disk that is full in the middle of a pass: nothing of the pass is left, and the next one charges it once."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, transaction
from django.db.models import Model

from credits.models import Balance, Entry, Spending
from namespaces.models import Namespace
from tests.callers import Caller
from tests.full_database import full_database
from tests.threads import run_at_once
from tests.workspaces.usage.test_charging import HOUR_NS, TICK, metered, record
from workspaces.charging import services as charging
from workspaces.models import (
    BillingCycle,
    ChargePosition,
    CycleUsage,
    LateRecord,
    NamespaceHour,
    NamespaceMinute,
    NamespaceTick,
    WorkspaceHour,
)

pytestmark = pytest.mark.django_db(transaction=True)

# What a pass writes, in its order.
WRITTEN: tuple[type[Model], ...] = (
    Balance, Entry, Spending, BillingCycle, LateRecord, WorkspaceHour, NamespaceTick, NamespaceMinute, NamespaceHour,
    CycleUsage, ChargePosition,
)  # fmt: skip


@pytest.fixture
def team(api: Caller) -> Namespace:
    return Namespace.objects.create(account=api.account, name="Team", slug="team")


def rows() -> list[list[Any]]:
    return [list(model._default_manager.order_by("pk").values_list()) for model in WRITTEN]


@pytest.mark.parametrize("model", WRITTEN)
def test_a_disk_that_is_full_in_a_pass_leaves_nothing_of_it(team: Namespace, model: type[Model]) -> None:
    record(metered(team), TICK, cpu_time_ns=HOUR_NS)
    assert charging.charge_metered() == 1
    before = rows()
    for number in range(60):
        record(metered(team, f"ws_{number}"), TICK + 86400 * 10**6 + number, cpu_time_ns=HOUR_NS)
    BillingCycle.objects.update(end=0)
    ChargePosition.objects.update(cycle_end=0)
    interrupted = rows()
    with full_database(model._meta.db_table), pytest.raises(OperationalError):
        charging.charge_metered()
    assert rows() == interrupted
    assert interrupted[1] == before[1]
    assert [charging.charge_metered() for _ in range(2)] == [60, 0]
    assert Balance.objects.get(namespace_id=team.pk).used == 61
    call_command("ledger_check")


def test_of_two_passes_at_once_the_second_charges_nothing_again(team: Namespace) -> None:
    """The second determines its end before the first commits."""
    for number in range(3):
        record(metered(team, f"ws_{number}"), TICK + number, cpu_time_ns=HOUR_NS)
    outcomes: list[str] = []
    second = Thread(target=lambda: outcomes.extend(run_at_once(1, lambda _: charging.charge_metered())))
    with transaction.atomic():
        assert charging.charge_metered() == 3
        second.start()
        second.join(1)  # it waits for the position
    second.join()
    assert outcomes == ["done"]
    assert Entry.objects.count() == 3
    assert Balance.objects.get(namespace_id=team.pk).used == 3
