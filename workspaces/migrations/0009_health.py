"""Since when the services of a running guest have not answered."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('workspaces', '0008_remove_main_exit_code'),
    ]

    operations = [
        migrations.AddField(
            model_name='workspace',
            name='unresponsive_since',
            field=models.DateTimeField(null=True),
        ),
    ]
