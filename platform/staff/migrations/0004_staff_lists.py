"""Indexes of the lists that staff filter and search (docs/console.md)."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters, RemoveIndexIfThere


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('staff', '0003_replaced_entries'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='staffentry',
            index=models.Index(fields=['action', '-id'], name='staff_entry_by_action'),
        ),
        AddIndexBesideWriters(
            model_name='staffentry',
            index=models.Index(fields=['outcome', '-id'], name='staff_entry_by_outcome'),
        ),
        AddIndexBesideWriters(
            model_name='staffentry',
            index=models.Index(fields=['object_id', '-id'], name='staff_entry_by_object_id'),
        ),
        AddIndexBesideWriters(
            model_name='staffentry',
            index=models.Index(fields=['object_type', '-id'], name='staff_entry_by_type'),
        ),
        AddIndexBesideWriters(
            model_name='staffentry',
            index=models.Index(fields=['user_name', '-id'], name='staff_entry_of_user'),
        ),
        RemoveIndexIfThere(model_name='staffentry', name='staff_entry_by_user'),
    ]
