"""Functions of PostgreSQL for holds and settlements."""

from django.db import migrations

from credits.hold_functions import create_functions, drop_functions


class Migration(migrations.Migration):

    dependencies = [
        ('credits', '0004_ledger_check'),
    ]

    operations = [
        migrations.RunPython(create_functions, drop_functions),
    ]
