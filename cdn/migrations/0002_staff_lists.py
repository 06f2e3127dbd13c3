"""Indexes of the lists that staff filter and search (docs/console.md)."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters
from common.prefix_keys import PrefixKey


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('accounts', '0006_assist_calls'),
        ('cdn', '0001_initial'),
        ('namespaces', '0002_activity_and_deletion'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='file',
            index=models.Index(fields=['account', '-id'], name='cdn_file_of_account'),
        ),
        AddIndexBesideWriters(
            model_name='file',
            index=models.Index(fields=['namespace', '-id'], name='cdn_file_of_namespace'),
        ),
        AddIndexBesideWriters(
            model_name='file',
            index=models.Index(fields=['kind', '-id'], name='cdn_file_by_kind'),
        ),
        AddIndexBesideWriters(
            model_name='file',
            index=models.Index(PrefixKey('filename'), models.F('id'), name='cdn_file_begins'),
        ),
        AddIndexBesideWriters(
            model_name='fileevent',
            index=models.Index(fields=['action', '-id'], name='cdn_event_by_action'),
        ),
        AddIndexBesideWriters(
            model_name='fileevent',
            index=models.Index(fields=['actor', '-id'], name='cdn_event_by_actor'),
        ),
        AddIndexBesideWriters(
            model_name='permit',
            index=models.Index(fields=['state', '-file'], name='cdn_permit_by_state'),
        ),
    ]
