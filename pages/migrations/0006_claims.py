from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('pages', '0005_payer_of_a_deploy'),
    ]

    operations = [
        migrations.RenameField(
            model_name='pagedeploy',
            old_name='heartbeat_at',
            new_name='lease_until',
        ),
        migrations.AlterField(
            model_name='pagedeploy',
            name='lease_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='pagedeploy',
            name='claim_epoch',
            field=models.PositiveBigIntegerField(db_default=0, default=0, editable=False),
        ),
    ]
