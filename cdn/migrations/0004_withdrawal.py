"""Withdrawals of the links of deactivated accounts; of those that an earlier version has deactivated, once more."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


def add_withdrawals(apps, schema_editor):
    withdrawals, now = apps.get_model("cdn", "Withdrawal").objects, django.utils.timezone.now()
    inactive = apps.get_model("accounts", "Account").objects.filter(is_active=False).values_list("pk", flat=True)
    for account_id in inactive.iterator():
        withdrawals.get_or_create(account_id=account_id, defaults={"due_at": now})


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0005_end_sessions'),
        ('cdn', '0003_lists_of_a_status'),
    ]

    operations = [
        migrations.CreateModel(
            name='Withdrawal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('after', models.CharField(blank=True, default='', max_length=24)),
                ('due_at', models.DateTimeField(db_index=True)),
                ('account', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='accounts.account')),
            ],
        ),
        migrations.RunPython(add_withdrawals, migrations.RunPython.noop),
    ]
