"""The indexes of entries by type and user where an earlier version of 0004 did not make them."""

from django.db import migrations, models

from common.index_operations import AddIndexIfMissing


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('staff', '0004_staff_lists'),
    ]

    operations = [
        AddIndexIfMissing(
            model_name='staffentry',
            index=models.Index(fields=['object_type', '-id'], name='staff_entry_by_type'),
        ),
        AddIndexIfMissing(
            model_name='staffentry',
            index=models.Index(fields=['user_name', '-id'], name='staff_entry_of_user'),
        ),
        migrations.RunSQL('DROP INDEX IF EXISTS staff_entry_by_user', migrations.RunSQL.noop),
    ]
