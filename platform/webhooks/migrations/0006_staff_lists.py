"""Indexes of the lists that staff filter and search (docs/console.md)."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters


class Migration(migrations.Migration):
    atomic = False

    dependencies = [
        ('accounts', '0006_assist_calls'),
        ('webhooks', '0005_direct_receivers'),
    ]

    operations = [
        AddIndexBesideWriters(
            model_name='auditentry',
            index=models.Index(fields=['action', '-id'], name='webhook_audit_by_action'),
        ),
        AddIndexBesideWriters(
            model_name='auditentry',
            index=models.Index(fields=['actor', '-id'], name='webhook_audit_by_actor'),
        ),
        AddIndexBesideWriters(
            model_name='event',
            index=models.Index(fields=['type', '-id'], name='event_by_type'),
        ),
        AddIndexBesideWriters(
            model_name='event',
            index=models.Index(fields=['account', '-id'], name='event_of_account'),
        ),
        AddIndexBesideWriters(
            model_name='subscription',
            index=models.Index(condition=models.Q(('failing_since__isnull', False)), fields=['failing_since'], name='webhook_failing'),
        ),
        AddIndexBesideWriters(
            model_name='subscription',
            index=models.Index(condition=models.Q(('disabled_reason__isnull', False)), fields=['updated_at'], name='webhook_disabled'),
        ),
    ]
