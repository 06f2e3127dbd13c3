"""A host name is one machine's at a time."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('vmbackend', '0003_load_and_version'),
    ]

    operations = [
        migrations.AddField(
            model_name='host',
            name='claim',
            field=models.CharField(blank=True, db_default='', default='', editable=False, max_length=80),
        ),
    ]
