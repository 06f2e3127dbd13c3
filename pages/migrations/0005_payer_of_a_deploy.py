"""The namespace whose credits a deploy holds."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('pages', '0004_source_of_live_release'),
    ]

    operations = [
        migrations.AddField(
            model_name='pagedeploy',
            name='payer_id',
            field=models.CharField(blank=True, default='', max_length=24),
        ),
    ]
