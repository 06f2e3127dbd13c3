"""Snapshots cost by the GB-hour until they are deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from credits.ledger_check import Counts
from credits.models import Balance, Entry, Rate
from tests.callers import Caller
from tests.workspaces.rows import make_workspace, snapshot_row
from workspaces.charging.check import all_drifts
from workspaces.charging.snapshots import charge_due_snapshots, charge_rest
from workspaces.models import Snapshot

pytestmark = pytest.mark.django_db
SIZE = 4 * 10**9


@pytest.fixture
def kept(api: Caller) -> Snapshot:
    """4 GB for ten hours, at a rate of 0.5."""
    Rate.objects.create(
        unit="snapshot_gb_hour", effective_from=datetime(2001, 1, 1, tzinfo=UTC), credits=Decimal("0.5")
    )
    made = snapshot_row(make_workspace(api.account), size_bytes=SIZE)
    made.charged_until = timezone.now() - timedelta(hours=10)
    made.save()
    return made


def charged() -> Decimal:
    return sum((entry.amount for entry in Entry.objects.all()), Decimal(0))


def test_a_gb_hour_is_charged_once(kept: Snapshot) -> None:
    assert [charge_due_snapshots() for _ in range(3)] == [1, 0, 0]
    assert charged() == Balance.objects.get(service="sandbox").used == Decimal("20")
    assert list(all_drifts(Counts())) == []


def test_a_deleted_one_is_charged_to_its_end(kept: Snapshot) -> None:
    deleted = kept.charged_until + timedelta(hours=3)
    Snapshot.objects.update(deleted_at=deleted)
    charge_rest(kept.pk)
    charge_rest(kept.pk)
    assert charged() == Decimal("6")


def test_without_a_price_nothing_is_written_and_the_time_goes_on(kept: Snapshot) -> None:
    Rate.objects.filter(unit="snapshot_gb_hour").delete()
    assert charge_due_snapshots() == 1
    assert not Entry.objects.exists()
    assert charge_due_snapshots() == 0


def test_one_that_is_not_complete_costs_nothing(kept: Snapshot) -> None:
    Snapshot.objects.update(charged_until=None)
    assert charge_due_snapshots() == 0
