"""The migration to billing cycles makes the sums that charging would have made, and keeps the names that are known."""

from __future__ import annotations

import time
from importlib import import_module

import pytest
from django.apps import apps

from credits.models import Entry
from namespaces.models import Namespace
from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from tests.workspaces.usage.test_charging import GB_HOUR, HOUR_NS, metered, record
from workspaces.charging import services as charging
from workspaces.charging.records import SUMS
from workspaces.models import ChargePosition, LateRecord, Metered, NamespaceMinute, WorkspaceHour

pytestmark = pytest.mark.django_db

migration = import_module("workspaces.migrations.0011_billing")


def sums() -> list[list[tuple[object, ...]]]:
    return [
        sorted(WorkspaceHour.objects.values_list("metered_id", "start", *SUMS)),
        sorted(NamespaceMinute.objects.values_list("namespace_id", "start", *SUMS)),
    ]


def test_sums_are_made_of_what_was_charged(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    default = Namespace.objects.get(account=api.account)
    now = int(time.time()) * 10**6
    uncharged = record(metered(default), now - 10**6, cpu_time_ns=HOUR_NS)
    begun = {"first_record_id": uncharged.pk, "record_id": uncharged.pk}
    ChargePosition.objects.update_or_create(pk=1, defaults=begun)
    for number in range(10):
        owner = metered(default, f"ws_{number % 3}")
        record(owner, now - number * 95 * 10**6, cpu_time_ns=number * HOUR_NS, memory_mb_ms=GB_HOUR, disk_bytes=number)
    assert charging.charge_metered() == 10
    assert LateRecord.objects.exists()
    wanted = sums()
    for model in (WorkspaceHour, NamespaceMinute):
        model.objects.all().delete()
    record(metered(default), now + 1, cpu_time_ns=HOUR_NS)  # not charged yet
    monkeypatch.setattr(migration, "CHUNK", 4)
    migration.fill_sums(apps, None)
    assert sums() == wanted
    assert ChargePosition.objects.get().first_cycle_entry_id == Entry.objects.order_by("-id").values_list("pk")[0][0]


def test_names_are_those_that_are_known(api: Caller) -> None:
    row = make_workspace(api.account, name="mine")
    default = Namespace.objects.get(account=api.account)
    metered(default, row.pk)
    metered(default, "ws_gone")
    migration.copy_names(apps, None)
    found = dict(Metered.objects.values_list("workspace_id", "workspace_name"))
    assert found == {row.pk: "mine", "ws_gone": ""}
    assert set(Metered.objects.values_list("namespace_slug", flat=True)) == {"default"}


def test_without_a_position_there_is_nothing_to_do(db: None) -> None:
    migration.fill_sums(apps, None)
    assert not WorkspaceHour.objects.exists()
