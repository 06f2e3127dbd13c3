"""The ledger; prices become whole numbers of 1e-8 credits; triggers refuse changes and deletions of entries.

A migration that rebuilds the table of entries on SQLite loses its triggers, and must make them again (`ledger_triggers`).
"""

import credits.amounts
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from decimal import Decimal
from django.db import migrations, models

from credits.ledger_triggers import protect_entries, unprotect_entries


def copy_rates(apps, schema_editor):
    for rate in apps.get_model("credits", "Rate").objects.all():
        rate.credits = rate.former_credits.quantize(credits.amounts.PLACES)
        rate.save(update_fields=["credits"])


class Migration(migrations.Migration):

    dependencies = [
        ('credits', '0002_rates'),
    ]

    operations = [
        migrations.RemoveConstraint(model_name='rate', name='rate_not_negative'),
        migrations.RenameField(model_name='rate', old_name='credits', new_name='former_credits'),
        migrations.AddField(model_name='rate', name='credits', field=credits.amounts.CreditsField(null=True)),
        migrations.RunPython(copy_rates, migrations.RunPython.noop),
        migrations.RemoveField(model_name='rate', name='former_credits'),
        migrations.AlterField(
            model_name='rate',
            name='credits',
            field=credits.amounts.CreditsField(validators=[django.core.validators.MinValueValidator(Decimal('0'))]),
        ),
        migrations.AddConstraint(
            model_name='rate',
            constraint=models.CheckConstraint(condition=models.Q(('credits__gte', 0)), name='rate_not_negative'),
        ),
        migrations.CreateModel(
            name='Balance',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('account_id', models.CharField(db_index=True, max_length=24)),
                ('namespace_id', models.CharField(max_length=24)),
                ('service', models.CharField(choices=[('sandbox', 'workspaces and sandboxes'), ('deployment', 'pages'), ('ai', 'code assistance'), ('cdn', 'CDN')], max_length=16)),
                ('used', credits.amounts.CreditsField(default=Decimal('0'))),
                ('held', credits.amounts.CreditsField(default=Decimal('0'))),
                ('quota_limit', credits.amounts.CreditsField(null=True)),
                ('overdraft', credits.amounts.CreditsField(default=Decimal('0'))),
                ('on_overdraft_action', models.CharField(choices=[('block', 'Block'), ('stop_workspaces', 'Stop Workspaces')], default='block', max_length=16)),
                ('notification_thresholds', models.JSONField(default=list)),
                ('last_threshold_fired', models.FloatField(null=True)),
                ('depleted_fired', models.BooleanField(default=False)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('namespace_id', 'service'), name='one_balance_for_a_service'), models.CheckConstraint(condition=models.Q(('held__gte', 0)), name='held_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='QuotaDefault',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('account_id', models.CharField(max_length=24)),
                ('service', models.CharField(choices=[('sandbox', 'workspaces and sandboxes'), ('deployment', 'pages'), ('ai', 'code assistance'), ('cdn', 'CDN')], max_length=16)),
                ('quota_limit', credits.amounts.CreditsField()),
                ('overdraft', credits.amounts.CreditsField(default=Decimal('0'))),
                ('on_overdraft_action', models.CharField(choices=[('block', 'Block'), ('stop_workspaces', 'Stop Workspaces')], default='block', max_length=16)),
                ('notification_thresholds', models.JSONField(default=list)),
                ('auto_apply', models.BooleanField(default=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('account_id', 'service'), name='one_default_for_a_service')],
            },
        ),
        migrations.CreateModel(
            name='Entry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('charge', 'Charge'), ('refund', 'Refund'), ('reset', 'Reset')], max_length=8)),
                ('amount', credits.amounts.CreditsField()),
                ('balance_after', credits.amounts.CreditsField()),
                ('workspace_id', models.CharField(blank=True, max_length=24)),
                ('description', models.CharField(blank=True, max_length=200)),
                ('key', models.CharField(max_length=100, null=True, unique=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('balance', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='entries', to='credits.balance')),
            ],
            options={
                'verbose_name_plural': 'entries',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['balance', '-id'], name='entries_of_balance')],
            },
        ),
        migrations.CreateModel(
            name='Hold',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key', models.CharField(max_length=100, unique=True)),
                ('amount', credits.amounts.CreditsField()),
                ('expires_at', models.DateTimeField(db_index=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('balance', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='holds', to='credits.balance')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('amount__gte', 0)), name='hold_not_negative')],
            },
        ),
        migrations.CreateModel(
            name='Spending',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField()),
                ('credits', credits.amounts.CreditsField()),
                ('requests', models.PositiveIntegerField()),
                ('balance', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='spending', to='credits.balance')),
            ],
            options={
                'verbose_name_plural': 'spending',
                'constraints': [models.UniqueConstraint(fields=('balance', 'day'), name='spending_of_a_day')],
            },
        ),
        migrations.RunPython(protect_entries, unprotect_entries),
    ]
