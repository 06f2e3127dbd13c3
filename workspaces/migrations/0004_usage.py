"""What workspaces use, in tiers and in totals, and what is billed."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0003_images'),
    ]

    operations = [
        migrations.CreateModel(
            name='Metered',
            fields=[
                ('id', models.AutoField(primary_key=True, serialize=False)),
                ('workspace_id', models.CharField(max_length=24)),
                ('namespace_id', models.CharField(max_length=24)),
                ('account_id', models.CharField(max_length=24)),
            ],
            options={
                'verbose_name_plural': 'metered',
                'constraints': [models.UniqueConstraint(fields=('workspace_id', 'namespace_id', 'account_id'), name='one_of_each_metered')],
            },
        ),
        migrations.CreateModel(
            name='MeterRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('metered', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='records', to='workspaces.metered')),
                ('period_ms', models.PositiveIntegerField()),
                ('tick', models.BigIntegerField()),
                ('cpu_time_ns', models.BigIntegerField()),
                ('memory_mb_ms', models.BigIntegerField()),
                ('disk_bytes', models.BigIntegerField()),
                ('network_bytes', models.BigIntegerField()),
            ],
            options={
                'ordering': ['id'],
                'constraints': [models.UniqueConstraint(fields=('metered', 'tick'), name='metered_once')],
            },
        ),
        migrations.CreateModel(
            name='Usage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tracking', models.BooleanField(default=True)),
                ('cleared', models.PositiveIntegerField(default=0)),
                ('total_cpu_time_ns', models.BigIntegerField(default=0)),
                ('total_disk_read', models.BigIntegerField(default=0)),
                ('total_disk_write', models.BigIntegerField(default=0)),
                ('total_net_rx', models.BigIntegerField(default=0)),
                ('total_net_tx', models.BigIntegerField(default=0)),
                ('run', models.CharField(blank=True, default='', max_length=64)),
                ('cpu_time_ns', models.BigIntegerField(default=0)),
                ('disk_read_bytes', models.BigIntegerField(default=0)),
                ('disk_write_bytes', models.BigIntegerField(default=0)),
                ('net_rx_bytes', models.BigIntegerField(default=0)),
                ('net_tx_bytes', models.BigIntegerField(default=0)),
                ('tick', models.BigIntegerField(default=0)),
                ('workspace', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='usage', to='workspaces.workspace')),
            ],
            options={
                'verbose_name_plural': 'usage',
            },
        ),
        migrations.CreateModel(
            name='UsagePoint',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tier', models.PositiveSmallIntegerField()),
                ('start', models.BigIntegerField()),
                ('observed_ms', models.BigIntegerField()),
                ('cpu_time_ns', models.BigIntegerField()),
                ('cpu_capacity_ns', models.BigIntegerField()),
                ('memory_kib_ms', models.BigIntegerField()),
                ('disk_read_bytes', models.BigIntegerField()),
                ('disk_write_bytes', models.BigIntegerField()),
                ('net_rx_bytes', models.BigIntegerField()),
                ('net_tx_bytes', models.BigIntegerField()),
                ('usage', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='points', to='workspaces.usage')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tier', 'start', 'usage'), name='usage_point_once')],
            },
        ),
    ]
