"""Charging of metered usage begins with this version: what was metered before is not charged."""

import credits.amounts
import django.db.models.deletion
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
        migrations.CreateModel(
            name='LateRecord',
            fields=[
                ('record', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, serialize=False, to='workspaces.meterrecord')),
                ('namespace_id', models.CharField(max_length=24)),
                ('counted_at', models.BigIntegerField()),
            ],
            options={
                'indexes': [models.Index(fields=['namespace_id', 'counted_at'], name='late_records')],
            },
        ),
        migrations.CreateModel(
            name='NamespaceHour',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('namespace_id', models.CharField(max_length=24)),
                ('start', models.BigIntegerField()),
                ('records', models.BigIntegerField()),
                ('cpu_time_ns', models.BigIntegerField()),
                ('memory_mb_ms', models.BigIntegerField()),
                ('disk_bytes', models.BigIntegerField()),
                ('network_bytes', models.BigIntegerField()),
                ('credits', credits.amounts.CreditsField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('namespace_id', 'start'), name='namespace_hour_once')],
            },
        ),
        migrations.RunPython(begin, migrations.RunPython.noop),
    ]
