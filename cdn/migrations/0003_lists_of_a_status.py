"""The index of files in the trash; that of permits where an earlier version of 0002 did not make it."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters, AddIndexIfMissing


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('cdn', '0002_staff_lists'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='file',
            index=models.Index(condition=models.Q(('status', 'trashed')), fields=['-id'], name='cdn_file_trashed'),
        ),
        AddIndexIfMissing(
            model_name='permit',
            index=models.Index(fields=['state', '-file'], name='cdn_permit_by_state'),
        ),
    ]
