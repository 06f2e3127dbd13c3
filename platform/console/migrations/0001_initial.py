from django.contrib.auth.management import create_permissions
from django.db import migrations, models


def roles_make(apps, schema_editor):
    """Permissions are made after the last migration of all: those that roles have are made here, as Django does it."""
    from console.roles import fill_roles

    using = schema_editor.connection.alias
    for config in list(apps.get_app_configs()):
        # The apps of a migration have none; an app without one has no permissions made.
        config.models_module = True
        create_permissions(config, verbosity=0, using=using, apps=apps)
        config.models_module = None
    fill_roles(apps.get_model("auth", "Group"), apps.get_model("auth", "Permission"))


class Migration(migrations.Migration):
    """After every model that a role has permissions of. What later ones add, `post_migrate` gives to the roles."""

    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("accounts", "0001_initial"),
        ("assist", "0001_initial"),
        ("cdn", "0001_initial"),
        ("certificates", "0001_initial"),
        ("credits", "0001_initial"),
        ("domains", "0001_initial"),
        ("namespaces", "0001_initial"),
        ("notifications", "0001_initial"),
        ("pages", "0001_initial"),
        ("sandboxes", "0001_initial"),
        ("staff", "0001_initial"),
        ("vmbackend", "0001_initial"),
        ("webhooks", "0001_initial"),
        ("workspaces", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="HourlySummary",
            fields=[
                ("hour", models.DateTimeField(primary_key=True, serialize=False)),
                ("taken_at", models.DateTimeField()),
                ("counts", models.JSONField(default=dict)),
                ("details", models.JSONField(null=True)),
            ],
            options={"verbose_name_plural": "hourly summaries", "ordering": ["-hour"]},
        ),
        migrations.RunPython(roles_make, migrations.RunPython.noop),
    ]
