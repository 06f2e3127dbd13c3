"""An index for entries of a service that few balances are of (docs/console.md)."""

from django.db import migrations, models
from django.db.models.functions import Upper

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('credits', '0012_staff_lists'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='balance',
            index=models.Index(Upper('service'), name='balances_of_service'),
        ),
    ]
