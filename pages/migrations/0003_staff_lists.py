"""Indexes of the lists that staff filter and search (docs/console.md)."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('accounts', '0006_assist_calls'),
        ('pages', '0002_staff_disabled'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='pageevent',
            index=models.Index(fields=['action', '-id'], name='page_event_by_action'),
        ),
        AddIndexBesideWriters(
            model_name='pageevent',
            index=models.Index(fields=['actor', '-id'], name='page_event_by_actor'),
        ),
        AddIndexBesideWriters(
            model_name='pagedeploy',
            index=models.Index(fields=['workspace_id', '-id'], name='page_deploy_of_workspace'),
        ),
        AddIndexBesideWriters(
            model_name='pagedeploy',
            index=models.Index(fields=['state', '-id'], name='page_deploy_by_state'),
        ),
    ]
