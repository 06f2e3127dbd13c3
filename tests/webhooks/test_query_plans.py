"""What `hooks` asks each second and for each claim goes by an index, however many deliveries there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.callers import Caller
from tests.webhooks.sending import NOWHERE, make_subscription, publish
from webhooks import claims, redeliver
from webhooks.models import Delivery, Event, Subscription
from webhooks.selectors import listed_deliveries
from webhooks.sharing import InFlight

pytestmark = pytest.mark.django_db
TABLE = Delivery._meta.db_table


def plan_of(sql: str) -> list[str]:
    """Return the steps that read deliveries, as for a large table: a small one is always read as a whole."""
    with connection.cursor() as cursor:
        _refresh_statistics(cursor)
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {sql}")
        steps = [str(row[0]) for row in cursor.fetchall() if "Scan" in row[0] and "deliver" in row[0]]
        return [step for step in steps if "Bitmap Heap Scan" not in step]  # by the index of the step below it


def _refresh_statistics(cursor: CursorWrapper) -> None:
    """The server analyzes what other tests committed, when it likes, and their rows leave a table and indexes of other
    sizes: the plan would be that of these.
    """
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what is not checked yet refuses the next statement
    cursor.execute(f"CLUSTER {TABLE} USING {TABLE}_pkey")  # a new file, and new indexes
    cursor.execute(f"ANALYZE {TABLE}, {Event._meta.db_table}, {Subscription._meta.db_table}")


# Of what is pending or leased: these do not grow with what was delivered. And the primary key, which has two.
INDEXES = ("deliveries_due_of_webhook", "deliveries_leased", "webhooks_delivery_pkey", "webhooks_delivery_id_")
IS_ANYTHING_DUE = "deliveries_due "


def is_by_index(step: str) -> bool:
    return any(name in step for name in INDEXES)


def asked(call: Callable[[], object]) -> list[str]:
    """The statements with their values that read deliveries."""
    with CaptureQueriesContext(connection) as found:
        call()
    return [query["sql"] for query in found if TABLE in query["sql"] and query["sql"].startswith(("SELECT", "\nWITH"))]


def test_each_query_of_a_pass_goes_by_an_index(api: Caller) -> None:
    make_subscription(api.account, NOWHERE)
    publish(api.account, 30)
    now = timezone.now()

    def one_pass() -> None:
        assert claims.is_anything_due(now)
        due, _ = claims.due_subscriptions(now)
        assert len(claims.claim_deliveries(due, InFlight(32))) == 4

    statements = asked(one_pass)
    assert len(statements) == 5
    steps = plan_of(statements[0])
    assert all(IS_ANYTHING_DUE in step for step in steps), steps
    for sql in statements[1:]:
        steps = plan_of(sql)
        assert steps, sql
        assert all(map(is_by_index, steps)), (steps, sql)


def test_what_failed_or_was_disabled_is_found_without_reading_what_was_delivered(api: Caller) -> None:
    subscription = make_subscription(api.account, NOWHERE)
    publish(api.account, 3)
    since = timezone.now()
    asked_for = [
        ("deliveries_failed", lambda: redeliver.failed_redeliver(subscription, since=since)),
        ("deliveries_failed", lambda: listed_deliveries(subscription, status="failed").count()),
        ("deliveries_failed", lambda: list(listed_deliveries(subscription, status="failed")[:50])),
        ("deliveries_disabled", lambda: listed_deliveries(subscription, status="disabled").count()),
        ("deliveries_disabled", lambda: list(listed_deliveries(subscription, status="disabled")[:50])),
    ]
    for index, call in asked_for:
        for sql in asked(call):
            assert any(index in step for step in plan_of(sql)), (plan_of(sql), sql)


def test_subscriptions_with_something_due_are_found_by_steps(api: Caller) -> None:
    for _ in range(10):
        make_subscription(api.account, NOWHERE)
    publish(api.account, 30)
    (sql,) = asked(lambda: claims.due_subscriptions(timezone.now()))
    assert len([step for step in plan_of(sql) if "deliveries_due_of_webhook" in step]) >= 3
