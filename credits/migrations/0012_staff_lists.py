"""Indexes of the lists that staff filter and search (docs/console.md)."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('credits', '0011_console'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='entry',
            index=models.Index(condition=models.Q(('kind', 'charge'), _negated=True), fields=['kind', '-id'], name='entries_but_charges'),
        ),
    ]
