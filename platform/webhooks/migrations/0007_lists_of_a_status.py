"""The index of deliveries by status; that of an account's events where an earlier version of 0006 did not make it."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters, AddIndexIfMissing


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('webhooks', '0006_staff_lists'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='delivery',
            index=models.Index(
                condition=models.Q(models.Q(('status', 'delivered'), _negated=True), ('attempts__gte', 0)),
                fields=['status', '-id'],
                name='deliveries_not_delivered',
            ),
        ),
        AddIndexIfMissing(
            model_name='event',
            index=models.Index(fields=['account', '-id'], name='event_of_account'),
        ),
    ]
