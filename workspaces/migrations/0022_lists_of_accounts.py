"""The accounts of the operations and public ports that are there, and the indexes by which they are listed."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.db.models import OuterRef, Q, Subquery

from common.index_operations import AddIndexBesideWriters

# Rows that are locked at once.
CHUNK = 1000


def accounts_write(apps: Any, schema_editor: Any) -> None:
    """Each part commits by itself, so that who writes a row waits for one part at most. May be repeated."""
    accounts = apps.get_model("workspaces", "Workspace").objects.filter(pk=OuterRef("workspace_id"))
    account = Subquery(accounts.values("account_id")[:1])
    for name in ("Operation", "PublicPort"):
        rows = apps.get_model("workspaces", name).objects.filter(account_id="")
        newest = rows.order_by("pk").values_list("pk", flat=True).last()
        if newest is None:
            continue
        # Without an end it would go on for as long as an earlier version adds rows.
        rows, beyond = rows.filter(pk__lte=newest), Q()
        while keys := list(rows.filter(beyond).order_by("pk").values_list("pk", flat=True)[:CHUNK]):
            rows.filter(beyond, pk__lte=keys[-1]).update(account_id=account)
            beyond = Q(pk__gt=keys[-1])


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("workspaces", "0021_accounts_of_operations"),
    ]

    operations = [
        migrations.RunPython(accounts_write, migrations.RunPython.noop),
        AddIndexBesideWriters(
            model_name="operation",
            index=models.Index(fields=["account_id", "-id"], name="operation_of_account"),
        ),
        AddIndexBesideWriters(
            model_name="publicport",
            index=models.Index(fields=["account_id", "-id"], name="public_port_of_account"),
        ),
    ]
