"""The newest entries of a namespace, in a ledger of many."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from credits import ledger, selectors
from credits.entries import Purpose
from credits.models import Entry, Service
from namespaces.models import Namespace
from tests.callers import Caller

pytestmark = pytest.mark.django_db


@pytest.fixture
def default(api: Caller) -> Namespace:
    """Its services were charged in turn."""
    found = Namespace.objects.get(account=api.account)
    for number in range(2 * selectors.RECENT_ENTRIES):
        service = Service.AI if number % 3 else Service.CDN
        ledger.credits_charge(namespace=found, service=service, amount=Decimal(number), purpose=Purpose())
    return found


def test_the_newest_of_all_services_come_first(default: Namespace, stranger: Caller) -> None:
    other = Namespace.objects.get(account=stranger.account)
    ledger.credits_charge(namespace=other, service=Service.AI, amount=Decimal(1), purpose=Purpose())
    amounts = [entry.amount for entry in selectors.recent_entries(default)]
    last = 2 * selectors.RECENT_ENTRIES
    assert amounts == list(range(last - 1, last - selectors.RECENT_ENTRIES - 1, -1))


def test_they_are_found_without_reading_older_ones(default: Namespace, stranger: Caller) -> None:
    other = Namespace.objects.get(account=stranger.account)
    newer = ledger.credits_charge(namespace=other, service=Service.AI, amount=Decimal(1), purpose=Purpose())
    row = {"balance": newer.balance, "kind": newer.kind, "amount": 1, "balance_after": 1}
    Entry.objects.bulk_create(Entry(**row) for _ in range(5000))
    with CaptureQueriesContext(connection) as captured:
        selectors.recent_entries(default)
    queries = [query["sql"] for query in captured if 'FROM "credits_entry"' in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what is not checked yet refuses ANALYZE
        cursor.execute("ANALYZE credits_entry, credits_balance")
        for sql in queries:
            cursor.execute(f"EXPLAIN {sql}")
            plan = str(cursor.fetchall())
            assert "entries_of_balance" in plan, plan
            assert "Sort Key: credits_entry" not in plan, "all are sorted"
    assert queries
