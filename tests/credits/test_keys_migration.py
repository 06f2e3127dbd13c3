"""The migration to keys of balances keeps what was written, and the triggers of the table that SQLite makes again."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from credits import holds, ledger
from credits.entries import Purpose
from credits.models import Entry, Service
from namespaces.models import Namespace
from tests.callers import Caller

pytestmark = pytest.mark.django_db(transaction=True)


def migrate(name: str) -> None:
    executor = MigrationExecutor(connection)
    executor.migrate([("credits", name)])


@pytest.fixture
def newest() -> Iterator[str]:
    """The name of the last migration, which is applied again at the end."""
    leaves = MigrationExecutor(connection).loader.graph.leaf_nodes("credits")
    name = leaves[0][1]
    try:
        yield name
    finally:
        migrate(name)


def test_entries_and_holds_stay_and_are_protected(api: Caller, newest: str) -> None:
    place = {"namespace": Namespace.objects.get(account=api.account), "service": Service.AI}
    migrate("0006_price_limit")
    old = MigrationExecutor(connection).loader.project_state([("credits", "0006_price_limit")]).apps
    balance = old.get_model("credits", "Balance").objects.create(
        account_id=api.account.pk, namespace_id=place["namespace"].pk, service="ai", used=Decimal(2), held=Decimal(1)
    )
    entry = old.get_model("credits", "Entry").objects.create(
        balance=balance, kind="charge", amount=Decimal(2), balance_after=Decimal(2), key="tick"
    )
    old.get_model("credits", "Hold").objects.create(
        key="call", balance=balance, amount=Decimal(1), expires_at=timezone.now()
    )
    migrate(newest)
    assert ledger.credits_charge(**place, amount=Decimal(2), purpose=Purpose("tick")).pk == entry.pk
    other = {**place, "service": Service.CDN}
    assert ledger.credits_charge(**other, amount=Decimal(3), purpose=Purpose("tick")).amount == 3
    assert holds.credits_hold(**other, amount=Decimal(4), key="call").amount == 4
    settled = holds.hold_settle(**place, key="call", amount=Decimal(1))
    assert settled is not None
    assert settled.balance_after == 3
    for statement in ("UPDATE credits_entry SET amount = 0", "DELETE FROM credits_entry"):
        with pytest.raises(DatabaseError, match="never changed"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    assert Entry.objects.count() == 3
