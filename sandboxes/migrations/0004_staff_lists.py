"""Indexes of the lists that staff filter and search (docs/console.md)."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('accounts', '0006_assist_calls'),
        ('sandboxes', '0003_staff_tokens_of_workspaces'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='sandboxevent',
            index=models.Index(fields=['action', '-id'], name='sandbox_event_by_action'),
        ),
        AddIndexBesideWriters(
            model_name='sandboxevent',
            index=models.Index(fields=['actor', '-id'], name='sandbox_event_by_actor'),
        ),
    ]
