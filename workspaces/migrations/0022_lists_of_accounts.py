"""Indexes of the operations and public ports of an account."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("workspaces", "0021_accounts_of_operations"),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name="operation",
            index=models.Index(fields=["account_id", "-id"], name="operation_of_account"),
        ),
        AddIndexBesideWriters(
            model_name="publicport",
            index=models.Index(fields=["account_id", "-id"], name="public_port_of_account"),
        ),
    ]
