"""Operations and public ports get the account of their workspace, by which staff list them (docs/console.md)."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.db.models import OuterRef, Subquery


def accounts_write(apps: Any, schema_editor: Any) -> None:
    accounts = apps.get_model("workspaces", "Workspace").objects.filter(pk=OuterRef("workspace_id"))
    for name in ("Operation", "PublicPort"):
        rows = apps.get_model("workspaces", name).objects.filter(account_id="")
        rows.update(account_id=Subquery(accounts.values("account_id")[:1]))


class Migration(migrations.Migration):
    dependencies = [
        ("workspaces", "0020_no_index_by_kind"),
    ]

    operations = [
        migrations.AddField(
            model_name="operation",
            name="account_id",
            field=models.CharField(db_default="", default="", editable=False, max_length=24),
        ),
        migrations.AddField(
            model_name="publicport",
            name="account_id",
            field=models.CharField(db_default="", default="", editable=False, max_length=24),
        ),
        migrations.RunPython(accounts_write, migrations.RunPython.noop),
    ]
