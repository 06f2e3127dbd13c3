"""The index of sends that a device did not get, which the dashboard counts."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('notifications', '0003_sends_of_a_state'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='send',
            index=models.Index(condition=models.Q(('failed__gt', 0)), fields=['-id', 'created_at'], name='send_failed'),
        ),
    ]
