"""The worker dies at each statement of the sweep over hosts: the next sweep ends with the same, each thing once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from tests.callers import Caller
from tests.fakehost import Died
from tests.workspaces.rows import end_leases, make_host, make_workspace
from vmbackend.models import Host
from workspaces.host.host_sweep import sweep_hosts
from workspaces.host_changes import host_give_up
from workspaces.models import Activity, Operation, Workspace
from workspaces.operations import queue

pytestmark = pytest.mark.django_db(transaction=True)


def dies_at(statement: int) -> Callable[..., Any]:
    """A wrapper of statements that ends the process at one of them."""
    left = [statement]

    def execute(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Died
        return run(sql, params, many, context)

    return execute


def swept(statement: int) -> bool:
    """Return whether a sweep ended before that statement."""
    try:
        with connection.execute_wrapper(dies_at(statement)):
            sweep_hosts()
    except Died:
        return False
    return True


def each_statement(prepare: Callable[[], None], check: Callable[[], None]) -> int:
    """Sweep, die at each statement, sweep again; how many statements there are."""
    statement = 0
    while True:
        prepare()
        ended = swept(statement)
        while sweep_hosts():
            pass
        check()
        if ended:
            return statement
        statement += 1
        assert statement < 200


def entries(action: str) -> int:
    return Activity.objects.filter(action=action).count()


def test_owners_are_told_once_wherever_the_sweep_dies(api: Caller) -> None:
    host = make_host("one")
    rows = [make_workspace(api.account, host=host) for _ in range(2)]

    def prepare() -> None:
        Activity.objects.all().delete()
        Host.objects.update(is_silent=False)
        end_leases()

    assert each_statement(prepare, lambda: _equal(entries("host_unreachable"), len(rows))) > 5


def test_a_host_that_was_given_up_is_emptied_wherever_the_sweep_dies(api: Caller) -> None:
    host = make_host("one")
    rows = [make_workspace(api.account, host=host) for _ in range(2)]
    stopping = rows[1]

    def prepare() -> None:
        Activity.objects.all().delete()
        Operation.objects.all().delete()
        Workspace.objects.update(status="running", error_code="", epoch=1, ready=True)
        Workspace.objects.filter(pk=stopping.pk).update(status="stopping", ready=False)
        stopping.refresh_from_db()
        queue.enqueue_operation(stopping, "stop", actor="owner", params={"from": "running"})
        Host.objects.update(state="active", is_silent=False)
        end_leases()
        host_give_up(host_id=host.pk, confirm="one")

    def check() -> None:
        found = set(Workspace.objects.values_list("status", "error_code", "epoch", "ready"))
        assert found == {("lost", "host_lost", 2, False)}
        assert entries("host_lost") == len(rows)
        assert set(Operation.objects.values_list("state", "error_code")) == {("failed", "host_lost")}

    assert each_statement(prepare, check) > 15


def _equal(found: int, wanted: int) -> None:
    assert found == wanted
