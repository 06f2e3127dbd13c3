from django.db import migrations


class Migration(migrations.Migration):
    """The exit code of a run is read from the driver when the machine has ended."""

    dependencies = [("workspaces", "0007_shown_totals")]

    operations = [migrations.RemoveField("workspace", "main_exit_code")]
