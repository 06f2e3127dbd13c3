"""Rows written and read without model instances are those that model instances would be."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from common.bulk_rows import add_rows, read_rows, rows_insert, update_rows
from credits.models import Balance, Entry, EntryKind, Service
from workspaces.models import LateRecord, NamespaceHour

pytestmark = pytest.mark.django_db

SUMS = ("records", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes", "credits")
TEXTS = ["plain", "", "NULL", 'a "quoted" \\ one', "{a,b}", "%s %d", "snow ☃", "two\nlines", "'"]


def make_balance() -> Balance:
    return Balance.objects.create(account_id="acc", namespace_id="ns", service=Service.AI)


def test_rows_are_inserted_in_their_order_with_any_text() -> None:
    balance, now = make_balance(), timezone.now()
    rows = [(balance.pk, number - 4, 2**62 + number, f"ws_{number}", text) for number, text in enumerate(TEXTS)]
    columns = ("balance_id", "amount", "balance_after", "workspace_id", "description")
    rows_insert(Entry, columns, rows, {"kind": EntryKind.CHARGE, "created_at": now})
    found = Entry.objects.order_by("id")
    assert [entry.description for entry in found] == TEXTS
    assert [entry.workspace_id for entry in found] == [f"ws_{number}" for number in range(len(TEXTS))]
    assert {(entry.kind, entry.created_at, entry.key) for entry in found} == {("charge", now, None)}
    assert read_rows(found.values_list("amount", "balance_after")) == [row[1:3] for row in rows]


def test_sums_are_added_to_rows_and_missing_rows_are_made() -> None:
    add_rows(NamespaceHour, ("namespace_id", "start"), SUMS, [("a", 0, 1, 2, 3, 4, 5, 6), ("b", 0, 1, 1, 1, 1, 1, 1)])
    add_rows(NamespaceHour, ("namespace_id", "start"), SUMS, [("a", 0, 1, 1, 1, 1, 1, 2**40), ("a", 1, *[0] * 6)])
    stored = read_rows(NamespaceHour.objects.order_by("namespace_id", "start").values_list("namespace_id", *SUMS))
    assert [tuple(row) for row in stored] == [
        ("a", 2, 3, 4, 5, 6, 6 + 2**40),
        ("a", 0, 0, 0, 0, 0, 0),
        ("b", 1, 1, 1, 1, 1, 1),
    ]


def test_rows_are_updated_by_their_keys() -> None:
    one, two = make_balance(), Balance.objects.create(account_id="acc", namespace_id="ns_2", service=Service.AI)
    update_rows(Balance, ["used", "held"], [(one.pk, 5, 6), (two.pk, -7, 2**40)])
    assert read_rows(Balance.objects.order_by("pk").values_list("used", "held")) == [(5, 6), (-7, 2**40)]


def test_nothing_is_no_statement() -> None:
    rows_insert(Entry, ("balance_id",), [])
    add_rows(NamespaceHour, ("namespace_id", "start"), SUMS, [])
    update_rows(Balance, ["used"], [])
    assert not Entry.objects.exists()


def test_the_database_refuses_what_is_wrong() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        rows_insert(LateRecord, ("record_id", "namespace_id"), [(1, "ns")])
