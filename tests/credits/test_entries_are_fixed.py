"""Entries of the ledger: no statement changes or removes one, and they outlive what they name."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from django.db import connection

from accounts.models import Account
from credits import ledger
from credits.entries import Purpose
from credits.models import Entry, Service
from namespaces.models import Namespace
from namespaces.services import deletions_continue, namespace_delete
from tests.callers import Caller

pytestmark = pytest.mark.django_db(transaction=True)

_COLUMNS = "balance_id, kind, amount, balance_after, workspace_id, description, key, created_at"
_COPY = "SELECT {id}, balance_id, kind, 0, 0, workspace_id, description, {key}, created_at FROM credits_entry"
_INTO = f"INTO credits_entry (id, {_COLUMNS}) "
_CONFLICT = "ON CONFLICT (balance_id, key) WHERE key IS NOT NULL"
STATEMENTS = (
    "UPDATE credits_entry SET amount = 0",
    "UPDATE credits_entry SET id = id + 100",
    "DELETE FROM credits_entry",
    "DELETE FROM credits_entry WHERE amount > 0",
    f"INSERT {_INTO} {_COPY.format(id='id', key='key')} WHERE true ON CONFLICT (id) DO UPDATE SET amount = 0",
    f"INSERT {_INTO} {_COPY.format(id='id + 9', key='key')} WHERE true {_CONFLICT} DO UPDATE SET amount = 0",
    "TRUNCATE credits_entry",
    "TRUNCATE credits_balance CASCADE",
    "MERGE INTO credits_entry USING (SELECT 1) AS one ON true WHEN MATCHED THEN UPDATE SET amount = 0",
    "MERGE INTO credits_entry USING (SELECT 1) AS one ON true WHEN MATCHED THEN DELETE",
    "WITH gone AS (DELETE FROM credits_entry RETURNING 1) SELECT count(*) FROM gone",
)


@pytest.fixture
def run_sql() -> Callable[[str], Any]:
    """Run a statement over a connection that is not Django's."""
    settings = connection.settings_dict

    def run(statement: str) -> None:
        raw = psycopg.connect(host=settings["HOST"], user=settings["USER"], dbname=settings["NAME"], autocommit=True)
        try:
            raw.execute(statement)
        finally:
            raw.close()

    return run


def charge(namespace: Namespace, key: str | None = None) -> Entry:
    return ledger.credits_charge(
        namespace=namespace, service=Service.SANDBOX, amount=Decimal(1), purpose=Purpose(key=key)
    )


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_statement_changes_an_entry(api: Caller, run_sql: Callable[[str], Any], statement: str) -> None:
    default = Namespace.objects.get(account=api.account)
    charge(default)
    charge(default, "by key")
    before = list(Entry.objects.order_by("id").values())
    with pytest.raises(psycopg.errors.IntegrityError, match="never changed"):
        run_sql(statement)
    assert list(Entry.objects.order_by("id").values()) == before
    assert charge(default).balance_after == 3


def test_entries_outlive_the_namespace_and_the_account(api: Caller) -> None:
    gone = Namespace.objects.create(account=api.account, name="Gone", slug="gone")
    entries = [charge(namespace).pk for namespace in api.account.namespaces.order_by("slug")]
    namespace_delete(namespace=gone, delete_workspaces=True, actor="owner")
    assert deletions_continue() == 0
    assert not Namespace.objects.filter(pk=gone.pk).exists()
    Account.objects.get(pk=api.account.pk).delete()
    assert list(Entry.objects.order_by("id").values_list("pk", flat=True)) == entries
    assert {entry.balance.used for entry in Entry.objects.select_related("balance")} == {Decimal(1)}
