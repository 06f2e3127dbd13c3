"""Keys of entries and holds are unique in their balance, and no longer in all of them."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import credits.amounts
from credits.hold_functions import create_functions
from credits.ledger_triggers import protect_entries, unprotect_entries


class Migration(migrations.Migration):

    dependencies = [
        ('credits', '0006_price_limit'),
    ]

    operations = [
        # SQLite makes the table again, and with it drops the triggers.
        migrations.RunPython(unprotect_entries, protect_entries),
        migrations.AlterField(
            model_name='entry',
            name='key',
            field=models.CharField(max_length=100, null=True),
        ),
        migrations.AddConstraint(
            model_name='entry',
            constraint=models.UniqueConstraint(condition=models.Q(('key__isnull', False)), fields=('balance', 'key'), name='entry_once_by_key'),
        ),
        migrations.RunPython(protect_entries, unprotect_entries),
        migrations.AlterField(
            model_name='hold',
            name='key',
            field=models.CharField(max_length=100),
        ),
        migrations.AlterField(
            model_name='hold',
            name='balance',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='holds', to='credits.balance'),
        ),
        migrations.AddConstraint(
            model_name='hold',
            constraint=models.UniqueConstraint(fields=('balance', 'key'), name='hold_once_by_key'),
        ),
        migrations.CreateModel(
            name='WaitingCharge',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('workspace_id', models.CharField(max_length=24)),
                ('amount', credits.amounts.CreditsField()),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('balance', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='waiting', to='credits.balance')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.RunPython(create_functions, migrations.RunPython.noop),
    ]
