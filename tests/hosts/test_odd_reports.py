"""Odd things that a host which was taken over writes into its rows: staff read its page all the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.callers import Caller
from tests.hosts.rows import joined_host, staff_token
from tests.workspaces.rows import make_workspace
from vmbackend.models import Host
from workspaces.host.reconcile.operations import expire_operations
from workspaces.models import Arrival, Move, Operation
from workspaces.models.operation import OperationKind, OperationState
from workspaces.operations import queue
from workspaces.states import Status

pytestmark = pytest.mark.django_db
# JSON of PostgreSQL that Python does not read.
DEEP, LONG = "[" * 3000 + "]" * 3000, "9" * 5000

ODD: list[Any] = [DEEP, LONG, None, 5, "x", {"a": 1}, [5], ["x"], [None], [[]], [{}]]
OF_SOURCE = [
    *(
        ("offers", odd)
        for odd in [*ODD, [{"id": "x", "bytes": "many"}], [{"id": 5, "bytes": None}], [{"id": "x", "bytes": 1e308}]]
    ),
    *(("needs", odd) for odd in ODD),
    ("error_code", "odd"),
]
OF_TARGET = [
    *(("received", odd) for odd in ODD),
    *(("differs", odd) for odd in [*ODD, [{"what": {"a": [1]}}]]),
    ("state", "odd"),
    ("bytes_done", -5),
]
OF_HOST = [
    *(("orphans", odd) for odd in ODD),
    *(("images", odd) for odd in ODD),
    *(("capabilities", odd) for odd in ODD),
    ("load", float("nan")),
    ("load", float("inf")),
    ("clock_offset_seconds", float("nan")),
]


@pytest.fixture
def hosts(db: None) -> list[Host]:
    return [joined_host("one"), joined_host("two")]


@pytest.fixture
def move(hosts: list[Host]) -> Move:
    made = Move.objects.create(
        workspace_id="ws_x", account_id="a", operation_id="op_x", source=hosts[0], target=hosts[1],
        source_name="one", target_name="two", epoch=1, from_status="stopped", memory=False, address="10.129.240.9",
        counts_as="stopped", memory_mb=1, disk_mb=1, actor="a", reason="b", error_code="x",
    )  # fmt: skip
    Arrival.objects.create(move=made, target=hosts[1])
    return made


def pages(hosts: list[Host]) -> list[int]:
    client = Client(raise_request_exception=False)
    headers = {"Authorization": f"Bearer {staff_token()}"}
    paths = ["/staff/hosts", *(f"/staff/hosts/{each.pk}{more}" for each in hosts for more in ("", "/orphans"))]
    return [client.get(path, headers=headers).status_code for path in paths]


@pytest.mark.parametrize(("column", "odd"), OF_SOURCE, ids=lambda each: str(each)[:20])
def test_odd_words_of_a_source(hosts: list[Host], move: Move, column: str, odd: Any) -> None:
    if odd in (None, DEEP, LONG):
        write("workspaces_move", column, odd)
    else:
        Move.objects.update(**{column: odd})
    assert set(pages(hosts)) == {200}


@pytest.mark.parametrize(("column", "odd"), OF_TARGET, ids=lambda each: str(each)[:20])
def test_odd_words_of_a_target(hosts: list[Host], move: Move, column: str, odd: Any) -> None:
    if odd in (None, DEEP, LONG):
        write("workspaces_arrival", column, odd)
    else:
        Arrival.objects.update(**{column: odd})
    assert set(pages(hosts)) == {200}


@pytest.mark.parametrize(("column", "odd"), OF_HOST, ids=lambda each: str(each)[:20])
def test_odd_reports_of_a_host(hosts: list[Host], column: str, odd: Any) -> None:
    if odd in (None, DEEP, LONG):
        write("vmbackend_host", column, odd)
    else:
        Host.objects.filter(pk=hosts[0].pk).update(**{column: odd})
    assert set(pages(hosts)) == {200}


def write(table: str, column: str, odd: str | None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = %s::jsonb", [odd or "null"])


@pytest.mark.parametrize(
    ("table", "column"),
    [
        *(("workspaces_move", each) for each in ("still_since", "finished_at", "left_at")),
        ("workspaces_arrival", "settled_at"),
    ],
)
def test_no_time_of_a_host_breaks_what_reads_moves(hosts: list[Host], move: Move, table: str, column: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = 'infinity'")
    assert set(pages(hosts)) == {200}


@pytest.mark.parametrize("odd", [5, ["x"], {"before": 5, "from": [1]}], ids=str)
def test_odd_params_keep_no_operation_from_its_end(api: Caller, odd: Any) -> None:
    begun = []
    for number, (status, kind) in enumerate(
        ((Status.RESIZING, OperationKind.RESIZE), (Status.STARTING, OperationKind.START))
    ):
        row = make_workspace(api.account, status=status, ip=f"10.129.240.{number + 9}", name=f"box-{number}")
        begun.append(queue.enqueue_operation(row, kind, actor="a"))
    Operation.objects.update(deadline_at=timezone.now() - timedelta(hours=1))
    first = Operation.objects.filter(pk=begun[0].pk)
    first.update(params=odd, deadline_at=timezone.now() - timedelta(hours=2))
    expire_operations()
    assert Operation.objects.get(pk=begun[1].pk).state == OperationState.FAILED
