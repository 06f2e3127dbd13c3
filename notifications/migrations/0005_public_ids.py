"""Devices are known to their owners by random numbers. Those that exist get theirs here."""

from django.db import migrations, models

import common.ids


def number_rows(apps, schema_editor):
    rows = apps.get_model("notifications", "Device").objects.using(schema_editor.connection.alias)
    for key in rows.filter(public_id=None).values_list("pk", flat=True).iterator():
        rows.filter(pk=key).update(public_id=common.ids.random_number())


class Migration(migrations.Migration):
    dependencies = [
        ('notifications', '0004_failed_sends'),
    ]

    operations = [
        migrations.AddField(
            model_name='device',
            name='public_id',
            field=models.BigIntegerField(editable=False, null=True),
        ),
        migrations.RunPython(number_rows, migrations.RunPython.noop),
        migrations.AlterField(
            model_name='device',
            name='public_id',
            field=models.BigIntegerField(default=common.ids.random_number, editable=False, unique=True),
        ),
    ]
