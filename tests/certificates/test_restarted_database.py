"""PostgreSQL is restarted in the middle of an order: its successor is the same order, with the same key."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

from certificates import services
from certificates.keys import check_chain
from certificates.leases import due_ids
from certificates.models import Certificate, OrderAttempt
from certificates.steps import certificate_step
from tests.certificates.killed import order_to_end
from tests.certificates.pebble import Pebble
from tests.killed_process import database_url, killed_process

pytestmark = pytest.mark.django_db(transaction=True)
OWNERS = ("ac_one", "ac_two")


@contextmanager
def cut_at(statement: int) -> Any:
    """The server ends this connection, as by a restart, before the n-th statement. Yields whether it came to that."""
    seen, cut = 0, []

    def count_statements(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen == statement:
            cut.append(statement)
            own = connection.connection.info.backend_pid
            with psycopg.connect(database_url(), autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 5000)", [own])
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count_statements):
        yield cut


def test_an_order_goes_on_where_the_connection_was_lost(ca: Pebble, announced: list[tuple[str, bool]]) -> None:
    for statement in count(1, 2):
        name = f"r{statement}.example.org"
        orders, issued = ca.orders(), ca.issued()
        services.certificate_request([name])
        key = Certificate.objects.get().pk
        with cut_at(statement) as cut, suppress(DatabaseError):
            certificate_step(key)
        connection.close()
        stored = Certificate.objects.get().order_key
        Certificate.objects.filter(lease_until__isnull=False).update(lease_until=timezone.now())
        order_to_end()
        row = Certificate.objects.get()
        assert (row.status, row.error, row.order_key) == ("active", "", None), statement
        check_chain(row.chain, name, row.key, timezone.now())
        assert stored in (None, row.key)
        assert (ca.orders() - orders, ca.issued() - issued) == (1, 1)
        Certificate.objects.all().delete()
        OrderAttempt.objects.all().delete()
        if not cut:
            break
    assert statement > 10


@pytest.mark.campaign
def test_orders_of_two_accounts_survive_the_deaths_of_their_process(
    ca: Pebble, announced: list[tuple[str, bool]]
) -> None:
    with killed_process() as process:
        for statement in count(2, 7):
            names = {owner: f"{owner[3:]}{statement}.example.org" for owner in OWNERS}
            orders, issued = ca.orders(), ca.issued()
            for owner, name in names.items():
                services.certificate_request([name], owner)
            killed = process.killed_at(statement, "tests.certificates.killed.order_to_end")
            before = dict(Certificate.objects.values_list("name", "order_key"))
            # Its successor dies as well.
            Certificate.objects.filter(lease_until__isnull=False).update(lease_until=timezone.now())
            process.killed_at(3, "tests.certificates.killed.order_to_end")
            Certificate.objects.filter(lease_until__isnull=False).update(lease_until=timezone.now())
            order_to_end()
            for owner, name in names.items():
                row = Certificate.objects.get(name=name)
                assert (row.status, row.error, row.owner) == ("active", "", owner)
                check_chain(row.chain, name, row.key, timezone.now())
                assert before[name] in (None, row.key)
            assert len(set(Certificate.objects.values_list("key", flat=True))) == 2
            assert (ca.orders() - orders, ca.issued() - issued) == (2, 2)
            assert OrderAttempt.objects.count() == 2
            Certificate.objects.all().delete()
            OrderAttempt.objects.all().delete()
            if not killed:
                break
    assert statement > 20
    assert due_ids(10) == []
