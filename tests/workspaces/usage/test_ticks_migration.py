"""The migration to sums of ticks makes those that charging would have made."""

from __future__ import annotations

import time
from importlib import import_module

import pytest
from django.apps import apps

from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.usage.test_charging import GB_HOUR, HOUR_NS, metered, record
from workspaces.charging import services as charging
from workspaces.charging.records import SUMS
from workspaces.models import ChargePosition, LateRecord, NamespaceTick

pytestmark = pytest.mark.django_db

migration = import_module("workspaces.migrations.0015_namespace_ticks")


def sums() -> list[tuple[object, ...]]:
    return sorted(NamespaceTick.objects.values_list("namespace_id", "tick", *SUMS))


def test_sums_are_made_of_what_was_charged(api: Caller, stranger: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    default, other = (Namespace.objects.get(account=caller.account) for caller in (api, stranger))
    now = int(time.time()) * 10**6
    uncharged = record(metered(default), now - 10**6, cpu_time_ns=HOUR_NS)
    begun = {"first_record_id": uncharged.pk, "record_id": uncharged.pk}
    ChargePosition.objects.update_or_create(pk=1, defaults=begun)
    for number in range(12):
        owner = metered(other if number % 4 == 3 else default, f"ws_{number % 4}")
        tick = now - number // 4 * 300 * 10**6
        record(owner, tick, cpu_time_ns=number * HOUR_NS, memory_mb_ms=GB_HOUR, disk_bytes=number)
    assert charging.charge_metered() == 12
    assert LateRecord.objects.exists()
    wanted = sums()
    assert len(wanted) == 6
    NamespaceTick.objects.all().delete()
    record(metered(default), now + 1, cpu_time_ns=HOUR_NS)  # not charged yet
    monkeypatch.setattr(migration, "CHUNK", 5)
    migration.fill_sums(apps, None)
    assert sums() == wanted


def test_without_a_position_there_is_nothing_to_do(db: None) -> None:
    migration.fill_sums(apps, None)
    assert not NamespaceTick.objects.exists()
