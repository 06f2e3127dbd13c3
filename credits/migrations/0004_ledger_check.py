"""What runs of `manage.py ledger_check` found."""

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('credits', '0003_ledger'),
    ]

    operations = [
        migrations.CreateModel(
            name='LedgerCheck',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('night', models.DateField(editable=False, null=True, unique=True)),
                ('started_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('finished_at', models.DateTimeField(null=True)),
                ('seconds', models.FloatField(null=True)),
                ('entries', models.BigIntegerField(default=0)),
                ('records', models.BigIntegerField(default=0)),
                ('balances', models.BigIntegerField(default=0)),
                ('differences', models.PositiveIntegerField(null=True)),
                ('sentences', models.JSONField(default=list)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
    ]
