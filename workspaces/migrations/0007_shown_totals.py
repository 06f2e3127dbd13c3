from django.db import migrations, models


class Migration(migrations.Migration):
    """The highest totals that were returned to a reader."""

    dependencies = [("workspaces", "0006_terms")]

    operations = [
        migrations.AddField("usage", name, models.BigIntegerField(default=0))
        for name in ("shown_cpu_time_ns", "shown_disk_read", "shown_disk_write", "shown_net_rx", "shown_net_tx")
    ]
