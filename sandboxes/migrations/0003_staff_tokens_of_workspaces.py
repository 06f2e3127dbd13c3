import django.db.models.deletion
from django.db import migrations, models


def tokens_delete(apps, schema_editor):
    """They are valid for an hour; staff open another."""
    apps.get_model("sandboxes", "StaffToken").objects.all().delete()


class Migration(migrations.Migration):

    dependencies = [
        ("sandboxes", "0002_staff_tokens"),
        ("workspaces", "0018_console"),
    ]

    operations = [
        migrations.RunPython(tokens_delete, migrations.RunPython.noop),
        migrations.RemoveField(model_name="stafftoken", name="sandbox"),
        migrations.AddField(
            model_name="stafftoken",
            name="workspace",
            field=models.ForeignKey(
                default=None,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="workspaces.workspace",
            ),
            preserve_default=False,
        ),
    ]
