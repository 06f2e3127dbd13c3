from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('certificates', '0003_staff_lists'),
    ]

    operations = [
        migrations.RenameField(
            model_name='certificate',
            old_name='lease_owner',
            new_name='claim',
        ),
        migrations.AlterField(
            model_name='certificate',
            name='claim',
            field=models.CharField(blank=True, default='', max_length=32),
        ),
        migrations.AddField(
            model_name='certificate',
            name='claim_epoch',
            field=models.PositiveBigIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.RemoveField(
            model_name='certificate',
            name='heartbeat_at',
        ),
    ]
