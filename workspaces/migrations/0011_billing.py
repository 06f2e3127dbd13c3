"""Sums by minute and by workspace, of what was charged before this version too; billing cycles begin with it."""

import credits.amounts
import django.db.models.deletion
from decimal import Decimal
from django.db import migrations, models
from django.db.models import Max, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce

from common.bulk_rows import rows_add
from credits.prices import PriceTable

CHUNK = 20_000
SUMS = ("records", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes", "credits")
AMOUNTS = SUMS[1:-1]


def copy_names(apps, schema_editor):
    """What is deleted already has no name."""
    workspace, namespace = (apps.get_model(*name).objects for name in (("workspaces", "Workspace"), ("namespaces", "Namespace")))
    apps.get_model("workspaces", "Metered").objects.update(
        workspace_name=Coalesce(Subquery(workspace.filter(pk=OuterRef("workspace_id")).values("name")), Value("")),
        namespace_slug=Coalesce(Subquery(namespace.filter(pk=OuterRef("namespace_id")).values("slug")), Value("")),
    )


def fill_sums(apps, schema_editor):
    position = apps.get_model("workspaces", "ChargePosition").objects.first()
    if position is None:
        return
    last_entry = apps.get_model("credits", "Entry").objects.aggregate(last=Max("id"))["last"] or 0
    type(position).objects.filter(pk=position.pk).update(first_cycle_entry_id=last_entry)
    prices = PriceTable(apps.get_model("credits", "Rate").objects.all())
    records = apps.get_model("workspaces", "MeterRecord").objects.filter(id__lte=position.record_id).order_by("id")
    columns = ("id", "metered_id", "metered__namespace_id", "tick", "laterecord__counted_at", *AMOUNTS)
    done = position.first_record_id
    while rows := list(records.filter(id__gt=done).values_list(*columns)[:CHUNK]):
        done = rows[-1][0]
        write_sums(apps, rows, prices)


def write_sums(apps, rows, prices):
    hours, minutes = {}, {}
    for _, metered, namespace, tick, late, *amounts in rows:
        counted = (late or tick) // 10**6
        for sums, key in ((hours, (metered, counted // 3600 * 3600)), (minutes, (namespace, counted // 60 * 60))):
            each = sums.setdefault(key, [0] * len(SUMS))
            for number, value in enumerate((1, *amounts, prices.stored_price(tick, *amounts))):
                each[number] += value
    for name, key, sums in (
        ("WorkspaceHour", ("metered_id", "start"), hours),
        ("NamespaceMinute", ("namespace_id", "start"), minutes),
    ):
        rows_add(apps.get_model("workspaces", name), key, SUMS, [(*each, *sums[each]) for each in sorted(sums)])


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0010_charging'),
        ('namespaces', '0001_initial'),
        ('credits', '0003_ledger'),
    ]

    operations = [
        migrations.AddField(
            model_name='chargeposition',
            name='counted_from',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='chargeposition',
            name='cycle_end',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='chargeposition',
            name='first_cycle_entry_id',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='metered',
            name='namespace_slug',
            field=models.CharField(blank=True, default='', max_length=128),
        ),
        migrations.AddField(
            model_name='metered',
            name='workspace_name',
            field=models.CharField(blank=True, default='', max_length=255),
        ),
        migrations.AlterField(
            model_name='metered',
            name='namespace_id',
            field=models.CharField(db_index=True, max_length=24),
        ),
        migrations.CreateModel(
            name='BillingCycle',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('start', models.BigIntegerField()),
                ('end', models.BigIntegerField()),
                ('reported_id', models.BigIntegerField(default=0)),
                ('workspaces', models.PositiveIntegerField(default=0)),
                ('credits', credits.amounts.CreditsField(default=Decimal('0'))),
                ('closed_at', models.DateTimeField(null=True)),
            ],
            options={
                'ordering': ['-start'],
                'indexes': [models.Index(condition=models.Q(('closed_at', None)), fields=['id'], name='cycle_unclosed')],
            },
        ),
        migrations.AddField(
            model_name='chargeposition',
            name='cycle',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workspaces.billingcycle'),
        ),
        migrations.CreateModel(
            name='NamespaceMinute',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('records', models.BigIntegerField()),
                ('cpu_time_ns', models.BigIntegerField()),
                ('memory_mb_ms', models.BigIntegerField()),
                ('disk_bytes', models.BigIntegerField()),
                ('network_bytes', models.BigIntegerField()),
                ('credits', credits.amounts.CreditsField()),
                ('namespace_id', models.CharField(max_length=24)),
                ('start', models.BigIntegerField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('namespace_id', 'start'), name='namespace_minute_once')],
            },
        ),
        migrations.CreateModel(
            name='CycleUsage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('records', models.BigIntegerField()),
                ('cpu_time_ns', models.BigIntegerField()),
                ('memory_mb_ms', models.BigIntegerField()),
                ('disk_bytes', models.BigIntegerField()),
                ('network_bytes', models.BigIntegerField()),
                ('credits', credits.amounts.CreditsField()),
                ('cycle', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='usage', to='workspaces.billingcycle')),
                ('metered', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='workspaces.metered')),
            ],
            options={
                'verbose_name_plural': 'cycle usage',
                'constraints': [models.UniqueConstraint(fields=('cycle', 'metered'), name='cycle_usage_once')],
            },
        ),
        migrations.CreateModel(
            name='WorkspaceHour',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('records', models.BigIntegerField()),
                ('cpu_time_ns', models.BigIntegerField()),
                ('memory_mb_ms', models.BigIntegerField()),
                ('disk_bytes', models.BigIntegerField()),
                ('network_bytes', models.BigIntegerField()),
                ('credits', credits.amounts.CreditsField()),
                ('start', models.BigIntegerField()),
                ('metered', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='hours', to='workspaces.metered')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('metered', 'start'), name='workspace_hour_once')],
            },
        ),
        migrations.RunPython(copy_names, migrations.RunPython.noop),
        migrations.RunPython(fill_sums, migrations.RunPython.noop),
    ]
