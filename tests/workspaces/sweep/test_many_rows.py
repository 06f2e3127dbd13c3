"""Many rows that are due at once, and the cost of finding those that are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_host, make_workspace, port_link, renew_leases
from tests.workspaces.sweep.sweeping import HOUR, ago, status_of, sweep_and_settle
from workspaces.host.sweep import BATCH, sweep_due
from workspaces.models import Activity, PortLink, Workspace
from workspaces.models.workspace import DUE_COLUMNS, TtlAction
from workspaces.network.links import links_expire
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def stuck(api: Caller, count: int, **fields: Any) -> None:
    host = make_host("silent", seen=ago(HOUR))
    template = make_workspace(api.account, host=host, **fields)
    rows = []
    for number in range(1, count):
        row = Workspace.objects.get(pk=template.pk)
        row.pk, row.slug = f"ws_stuck{number:08d}", f"stuck-{number}"
        rows.append(row)
    Workspace.objects.bulk_create(rows)


def test_rows_of_a_silent_host_stay_due_and_delay_no_other_row(
    api: Caller, vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    stuck(api, 2 * BATCH, ttl_action=TtlAction.STOP, ttl_expires_at=ago(HOUR), ttl_seconds=60)
    row = machine(ttl_expires_at=ago())
    assert sweep_and_settle(vmhost) == 1
    assert status_of(row) == "stopped"
    waiting = Workspace.objects.filter(host__name="silent", status=Status.RUNNING, ttl_expires_at__lt=timezone.now())
    assert waiting.count() == 2 * BATCH
    renew_leases(name="silent")
    vmhost.hold_tasks()
    assert sweep_due() == BATCH
    assert vmhost.held_tasks is not None
    vmhost.held_tasks.clear()


def test_rows_that_cannot_be_handled_delay_no_other_row(
    api: Caller, vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    """Restarts that the namespace refuses, more of them than a sweep takes at once."""
    stuck(api, BATCH + 50, status=Status.STOPPED, restart_policy="always", restart_due_at=ago(HOUR))
    renew_leases()
    closed = api.account.namespaces.create(slug="closed", status="suspended", suspended_by_hand=True)
    Workspace.objects.update(namespace=closed)
    row = machine(ttl_expires_at=ago())
    sweep_due()
    sweep_due()
    vmhost.settle()
    assert status_of(row) == "stopped"
    assert Workspace.objects.filter(restart_due_at__gt=timezone.now()).count() == BATCH + 50
    assert Activity.objects.filter(action="restart_postponed").count() == BATCH + 50
    Workspace.objects.filter(restart_due_at__isnull=False).update(restart_due_at=ago())
    sweep_due()
    assert Activity.objects.filter(action="restart_postponed").count() == BATCH + 50  # reported once


def test_a_sweep_with_nothing_due_is_one_query_over_the_indexes_of_each_table(
    api: Caller, vmhost: FakeHost, django_assert_num_queries: Any
) -> None:
    later = timezone.now() + HOUR
    stuck(api, 2000, ttl_expires_at=later, idle_due_at=later, memory_expires_at=later, restart_due_at=later)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE workspaces_workspace")
    with django_assert_num_queries(3) as asked:  # the others are of snapshots and of links
        assert sweep_due() == 0
    plan = explained(asked.captured_queries[0]["sql"])
    assert [column for column in DUE_COLUMNS if f"workspace_{column}" not in plan] == []
    assert "Seq Scan on workspaces_workspace" not in plan


def test_links_whose_time_is_over_are_found_without_those_that_are_alive(api: Caller) -> None:
    first = port_link(make_workspace(api.account))
    copies = (PortLink(port=first.port, token_hash=f"{number}", expires_at=first.expires_at) for number in range(5000))
    PortLink.objects.bulk_create(copies)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE workspaces_portlink")
    with CaptureQueriesContext(connection) as asked:
        assert links_expire() == 0
    plan = explained(asked.captured_queries[0]["sql"])
    assert "Seq Scan" not in plan
    assert plan.count("Index Cond") == 2, plan


def explained(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}")
        return "\n".join(str(row[-1]) for row in cursor.fetchall())
