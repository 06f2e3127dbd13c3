"""Indexes of the lists that staff filter and search (docs/console.md)."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("certificates", "0002_limits_of_owners_and_contacts")]

    operations = [
        AddIndexBesideWriters(
            model_name="certificate",
            index=models.Index(
                condition=models.Q(wanted=True), fields=["status", "expires_at"], name="certificate_by_status"
            ),
        ),
    ]
