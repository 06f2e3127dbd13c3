"""Charging of metered usage begins with this version: what was metered before is not charged."""

from django.db import migrations, models


def begin(apps, schema_editor):
    records = apps.get_model("workspaces", "MeterRecord").objects
    last = records.aggregate(last=models.Max("id"))["last"] or 0
    apps.get_model("workspaces", "ChargePosition").objects.create(pk=1, first_record_id=last, record_id=last)


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0009_health'),
    ]

    operations = [
        migrations.CreateModel(
            name='ChargePosition',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('first_record_id', models.BigIntegerField(default=0)),
                ('record_id', models.BigIntegerField(default=0)),
            ],
        ),
        migrations.RunPython(begin, migrations.RunPython.noop),
    ]
