"""Public ports, and whether a machine's host was notified of the last change of its network."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import workspaces.models.public_port


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0004_usage'),
    ]

    operations = [
        migrations.AddField(
            model_name='workspace',
            name='network_stale',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='workspace',
            name='published_ports',
            field=models.PositiveSmallIntegerField(default=0),
        ),
        migrations.CreateModel(
            name='PublicPort',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('port', models.PositiveIntegerField()),
                ('hash', models.CharField(default=workspaces.models.public_port.new_hash, editable=False, max_length=32, unique=True)),
                ('label', models.CharField(blank=True, default='', max_length=100)),
                ('slug', models.CharField(blank=True, default='', max_length=42)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('workspace', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='public_ports', to='workspaces.workspace')),
            ],
            options={
                'ordering': ['port'],
                'constraints': [models.UniqueConstraint(fields=('workspace', 'port'), name='public_port_once_per_workspace'), models.CheckConstraint(condition=models.Q(('port__gte', 1), ('port__lte', 65535)), name='public_port_is_a_port')],
            },
        ),
    ]
