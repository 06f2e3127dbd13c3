"""The index of accounts alone, which that of 0005 replaces. A migration of its own: SQLite copies the table for it."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("sandboxes", "0005_events_of_accounts"),
    ]

    operations = [
        migrations.AlterField(
            model_name="sandboxevent",
            name="account",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.account"
            ),
        ),
    ]
