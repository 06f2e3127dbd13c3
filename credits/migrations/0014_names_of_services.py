"""Quotas of services that the platform does not know have longer names."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('credits', '0013_balances_of_service'),
    ]

    operations = [
        migrations.AlterField(
            model_name='balance',
            name='service',
            field=models.CharField(choices=[('sandbox', 'workspaces and sandboxes'), ('deployment', 'pages'), ('ai', 'code assistance'), ('cdn', 'CDN')], max_length=64),
        ),
        migrations.AlterField(
            model_name='quotadefault',
            name='service',
            field=models.CharField(choices=[('sandbox', 'workspaces and sandboxes'), ('deployment', 'pages'), ('ai', 'code assistance'), ('cdn', 'CDN')], max_length=64),
        ),
    ]
