"""Prices end where no balance can be filled, so no charge waits for room in one."""

import logging
from decimal import Decimal

import django.core.validators
from django.db import migrations

import credits.amounts

logger = logging.getLogger(__name__)


def report_waiting(apps, schema_editor):
    """Name in the log what waits: the check of the ledger reports it as a difference from now on."""
    for row in apps.get_model('credits', 'WaitingCharge').objects.all():
        logger.error('balance %s: %s credits of %s waited, and are not charged', row.balance_id, row.amount, row.workspace_id)


def remove_permissions(apps, schema_editor):
    """Those of the model, with its content type; groups had them."""
    apps.get_model('contenttypes', 'ContentType').objects.filter(app_label='credits', model='waitingcharge').delete()


class Migration(migrations.Migration):

    dependencies = [
        ('credits', '0014_names_of_services'),
        ('contenttypes', '0002_remove_content_type_name'),
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.AlterField(
            model_name='rate',
            name='credits',
            field=credits.amounts.CreditsField(validators=[django.core.validators.MinValueValidator(Decimal('0')), django.core.validators.MaxValueValidator(Decimal('1000'))]),
        ),
        migrations.RunPython(report_waiting, migrations.RunPython.noop),
        migrations.DeleteModel(
            name='WaitingCharge',
        ),
        migrations.RunPython(remove_permissions, migrations.RunPython.noop),
    ]
