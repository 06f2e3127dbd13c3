"""Operations and public ports get the account of their workspace, by which staff list them (docs/console.md).

The columns alone: what adds one locks the table for all others until its transaction ends. 0022 fills them in.
"""

from django.db import migrations, models


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
    ]
