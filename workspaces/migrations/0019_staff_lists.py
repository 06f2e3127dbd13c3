"""Indexes of the lists that staff filter and search (docs/console.md)."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters, RemoveIndexIfThere
from common.prefix_keys import PrefixKey


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('accounts', '0006_assist_calls'),
        ('namespaces', '0003_staff_lists'),
        ('vmbackend', '0003_load_and_version'),
        ('workspaces', '0018_console'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='activity',
            index=models.Index(fields=['workspace_id', '-id'], name='activity_of_workspace'),
        ),
        RemoveIndexIfThere(model_name='activity', name='activity_by_workspace'),
        AddIndexBesideWriters(
            model_name='activity',
            index=models.Index(fields=['event', '-id'], name='activity_by_event'),
        ),
        AddIndexBesideWriters(
            model_name='activity',
            index=models.Index(fields=['actor', '-id'], name='activity_by_actor'),
        ),
        AddIndexBesideWriters(
            model_name='metered',
            index=models.Index(fields=['account_id'], name='metered_of_account'),
        ),
        AddIndexBesideWriters(
            model_name='operation',
            index=models.Index(fields=['kind', '-id'], name='operation_by_kind'),
        ),
        AddIndexBesideWriters(
            model_name='operation',
            index=models.Index(fields=['state', '-id'], name='operation_by_state'),
        ),
        AddIndexBesideWriters(
            model_name='operation',
            index=models.Index(fields=['queue', '-id'], name='operation_by_queue'),
        ),
        AddIndexBesideWriters(
            model_name='workspace',
            index=models.Index(fields=['mode', '-id'], name='workspace_by_mode'),
        ),
        AddIndexBesideWriters(
            model_name='workspace',
            index=models.Index(fields=['host', '-id'], name='workspace_on_host'),
        ),
        AddIndexBesideWriters(
            model_name='workspace',
            index=models.Index(PrefixKey('name'), models.F('id'), name='workspace_name_begins'),
        ),
        AddIndexBesideWriters(
            model_name='workspace',
            index=models.Index(PrefixKey('slug'), models.F('id'), name='workspace_slug_begins'),
        ),
        AddIndexBesideWriters(
            model_name='workspace',
            index=models.Index(fields=['ip'], name='workspace_by_ip'),
        ),
    ]
