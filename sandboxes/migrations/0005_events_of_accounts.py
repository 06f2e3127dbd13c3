"""The index of the audit entries of an account, in their order."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ("accounts", "0006_assist_calls"),
        ("sandboxes", "0004_staff_lists"),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name="sandboxevent",
            index=models.Index(fields=["account", "-id"], name="sandbox_event_of_account"),
        ),
    ]
