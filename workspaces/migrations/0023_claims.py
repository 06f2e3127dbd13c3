from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0022_lists_of_accounts'),
    ]

    operations = [
        migrations.RenameField(
            model_name='operation',
            old_name='heartbeat_at',
            new_name='lease_until',
        ),
        migrations.AlterField(
            model_name='operation',
            name='lease_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='operation',
            name='claim_epoch',
            field=models.PositiveBigIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AlterField(
            model_name='operation',
            name='claim',
            field=models.CharField(blank=True, default='', max_length=32),
        ),
    ]
