from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('cdn', '0004_withdrawal'),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='file',
            name='cdn_file_processing',
        ),
        migrations.RenameField(
            model_name='file',
            old_name='claim_until',
            new_name='lease_until',
        ),
        migrations.AlterField(
            model_name='file',
            name='lease_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.RenameField(
            model_name='file',
            old_name='attempts',
            new_name='attempt',
        ),
        migrations.AddField(
            model_name='file',
            name='claim_epoch',
            field=models.PositiveBigIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddIndex(
            model_name='file',
            index=models.Index(condition=models.Q(('status', 'processing')), fields=['lease_until'], name='cdn_file_processing'),
        ),
    ]
