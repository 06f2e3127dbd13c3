"""An earlier version of 0019 made an index by kind, which SQLite took for the sandboxes of one account, and none by host."""

from django.db import migrations, models

from common.index_operations import AddIndexIfMissing


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('workspaces', '0019_staff_lists'),
    ]

    operations = [
        AddIndexIfMissing(
            model_name='workspace',
            index=models.Index(fields=['host', '-id'], name='workspace_on_host'),
        ),
        migrations.RunSQL('DROP INDEX IF EXISTS workspace_by_kind', migrations.RunSQL.noop),
    ]
