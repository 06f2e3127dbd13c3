"""The accounts of operations and public ports that had none: by the migrations, and later by a periodic task."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import AddField
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.callers import Caller
from tests.workspaces.rows import make_host, make_workspace
from workspaces.models import Operation, PublicPort, Workspace
from workspaces.operations import accounts
from workspaces.tasks import write_missing_accounts

pytestmark = pytest.mark.django_db


def test_rows_get_the_account_of_their_workspace_in_parts(
    api: Caller, stranger: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for caller in (api, stranger):
        box = make_workspace(caller.account, host=make_host())
        for port in (8080, 8081, 8082):
            Operation.objects.create(workspace=box, kind="start", state="done", queue="q", deadline_at=timezone.now())
            PublicPort.objects.create(workspace=box, port=port)
    migration = import_module("workspaces.migrations.0022_lists_of_accounts")
    monkeypatch.setattr(migration, "CHUNK", 4)
    for updates in (4, 0):  # two parts of each table; the second time as after a death
        with CaptureQueriesContext(connection) as captured:
            migration.accounts_write(apps, None)
        assert sum(query["sql"].startswith("UPDATE") for query in captured) == updates
        for model in (Operation, PublicPort):
            rows = model._default_manager.select_related("workspace")
            assert {row.account_id == row.workspace.account_id for row in rows} == {True}


def test_no_row_is_written_in_the_transaction_that_locks_the_tables() -> None:
    """PostgreSQL lets no other connection read a table from ALTER TABLE to the end of its transaction."""
    loader = MigrationLoader(connection)
    locking = loader.get_migration("workspaces", "0021_accounts_of_operations")
    assert {type(operation) for operation in locking.operations} == {AddField}
    assert not loader.get_migration("workspaces", "0022_lists_of_accounts").atomic


def test_rows_that_an_earlier_version_adds_do_not_keep_it_from_its_end(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = make_workspace(api.account, host=make_host())
    migration = import_module("workspaces.migrations.0022_lists_of_accounts")
    monkeypatch.setattr(migration, "CHUNK", 1)
    ports = iter(range(1, 50))
    PublicPort.objects.create(workspace=box, port=next(ports))

    def adding(execute: Any, sql: str, *args: Any) -> Any:
        done = execute(sql, *args)
        if sql.startswith("UPDATE"):
            PublicPort.objects.create(workspace=box, port=next(ports))
        return done

    with connection.execute_wrapper(adding):
        migration.accounts_write(apps, None)
    assert PublicPort.objects.count() == 2


def made_by_an_earlier_version(caller: Caller, ports: int) -> None:
    box = make_workspace(caller.account, host=make_host())
    Operation.objects.create(workspace=box, kind="start", state="done", queue="q", deadline_at=timezone.now())
    PublicPort.objects.bulk_create(PublicPort(workspace=box, port=port) for port in range(1, ports + 1))
    Operation.objects.filter(workspace=box).update(account_id="")
    PublicPort.objects.filter(workspace=box).update(account_id="")


def test_what_an_earlier_version_has_added_since_gets_its_account_later(
    api: Caller, stranger: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "CHUNK", 2)
    for caller in (api, stranger):
        made_by_an_earlier_version(caller, ports=3)
    assert write_missing_accounts() == 8
    for model in (Operation, PublicPort):
        rows = model._default_manager.select_related("workspace")
        assert {row.account_id == row.workspace.account_id for row in rows} == {True}
    with CaptureQueriesContext(connection) as captured:
        assert write_missing_accounts() == 0
    assert len(captured) == 2


def test_a_workspace_that_is_deleted_while_accounts_are_written_stops_nothing(api: Caller) -> None:
    for _ in range(2):
        made_by_an_earlier_version(api, ports=2)
    doomed = [Workspace.objects.first()]

    def deleting(execute: Any, sql: str, *args: Any) -> Any:
        if sql.startswith("UPDATE") and doomed and (box := doomed.pop()):
            box.delete()
        return execute(sql, *args)

    with connection.execute_wrapper(deleting):
        assert write_missing_accounts() == 3
    assert not PublicPort.objects.filter(account_id="").exists()
    assert PublicPort.objects.count() == 2
