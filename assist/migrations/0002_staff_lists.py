"""Indexes of the lists that staff filter and search (docs/console.md)."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('accounts', '0006_assist_calls'),
        ('assist', '0001_initial'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='keyevent',
            index=models.Index(fields=['action', '-id'], name='key_event_by_action'),
        ),
        AddIndexBesideWriters(
            model_name='keyevent',
            index=models.Index(fields=['actor', '-id'], name='key_event_by_actor'),
        ),
    ]
