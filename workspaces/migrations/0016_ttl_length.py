from django.db import migrations, models


class Migration(migrations.Migration):
    """Rows of before have no length: their TTL is not corrected after the clock was set back, until it is set again."""

    dependencies = [("workspaces", "0015_namespace_ticks")]
    operations = [
        migrations.AddField("workspace", "ttl_length", models.PositiveIntegerField(null=True)),
    ]
