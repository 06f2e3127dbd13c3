"""Indexes of the lists that staff filter and search (docs/console.md)."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('accounts', '0006_assist_calls'),
        ('notifications', '0001_initial'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='notificationevent',
            index=models.Index(fields=['action', '-id'], name='notification_event_by_action'),
        ),
        AddIndexBesideWriters(
            model_name='notificationevent',
            index=models.Index(fields=['actor', '-id'], name='notification_event_by_actor'),
        ),
        AddIndexBesideWriters(
            model_name='send',
            index=models.Index(fields=['account_id', '-id'], name='send_of_account'),
        ),
        AddIndexBesideWriters(
            model_name='send',
            index=models.Index(fields=['workspace_id', '-id'], name='send_of_workspace'),
        ),
        AddIndexBesideWriters(
            model_name='send',
            index=models.Index(fields=['state', '-id'], name='send_in_state'),
        ),
    ]
