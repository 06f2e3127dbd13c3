"""Indexes of the lists that staff filter and search (docs/console.md)."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('accounts', '0006_assist_calls'),
        ('namespaces', '0002_activity_and_deletion'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='namespaceactivity',
            index=models.Index(fields=['action', '-id'], name='namespace_activity_by_action'),
        ),
        AddIndexBesideWriters(
            model_name='namespaceactivity',
            index=models.Index(fields=['user_id', '-id'], name='namespace_activity_by_actor'),
        ),
    ]
