"""The index of sends by state where an earlier version of 0002 did not make it."""

from django.db import migrations, models

from common.index_operations import AddIndexIfMissing


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('notifications', '0002_staff_lists'),
    ]

    operations = [
        AddIndexIfMissing(
            model_name='send',
            index=models.Index(fields=['state', '-id'], name='send_in_state'),
        ),
    ]
