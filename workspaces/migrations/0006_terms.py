from django.db import migrations


class Migration(migrations.Migration):
    """Columns under the names that the code uses. Renames only: no row is rewritten."""

    dependencies = [("workspaces", "0005_network")]

    operations = [
        migrations.RenameField("operation", "rung_at", "notified_at"),
        migrations.RenameField("workspace", "image_pin", "catalog_snapshot"),
        migrations.RenameField("usage", "cleared", "reset_count"),
        migrations.RenameField("usage", "run", "generation"),
    ]
