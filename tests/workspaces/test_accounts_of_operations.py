"""The migration that writes the accounts of operations and public ports that are there."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.utils import timezone

from tests.callers import Caller
from tests.workspaces.rows import make_host, make_workspace
from workspaces.models import Operation, PublicPort

pytestmark = pytest.mark.django_db


def test_rows_get_the_account_of_their_workspace(api: Caller, stranger: Caller) -> None:
    for caller in (api, stranger):
        box = make_workspace(caller.account, host=make_host())
        Operation.objects.create(workspace=box, kind="start", queue="q", deadline_at=timezone.now())
        PublicPort.objects.create(workspace=box, port=8080)
    migration = import_module("workspaces.migrations.0021_accounts_of_operations")
    for _ in range(2):
        migration.accounts_write(apps, None)
        for model in (Operation, PublicPort):
            rows = model._default_manager.select_related("workspace")
            assert {row.account_id == row.workspace.account_id for row in rows} == {True}
