from django.contrib.auth.management import create_permissions
from django.db import migrations


def roles_make(apps, schema_editor):
    """Permissions are made after the last migration of all: those that roles have are made here, as Django does it."""
    from console.roles import roles_fill

    using = schema_editor.connection.alias
    for config in list(apps.get_app_configs()):
        # The apps of a migration have none; an app without one has no permissions made.
        config.models_module = True
        create_permissions(config, verbosity=0, using=using, apps=apps)
        config.models_module = None
    roles_fill(apps.get_model("auth", "Group"), apps.get_model("auth", "Permission"))


class Migration(migrations.Migration):
    """After every model that a role has permissions of. What later ones add, `post_migrate` gives to the roles."""

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        ("accounts", "0006_assist_calls"),
        ("assist", "0001_initial"),
        ("cdn", "0001_initial"),
        ("certificates", "0002_limits_of_owners_and_contacts"),
        ("credits", "0011_console"),
        ("dashboard", "0001_initial"),
        ("domains", "0002_owners_of_certificates"),
        ("namespaces", "0002_activity_and_deletion"),
        ("notifications", "0001_initial"),
        ("pages", "0002_staff_disabled"),
        ("sandboxes", "0003_staff_tokens_of_workspaces"),
        ("staff", "0003_replaced_entries"),
        ("vmbackend", "0003_load_and_version"),
        ("webhooks", "0005_direct_receivers"),
        ("workspaces", "0018_console"),
    ]

    operations = [migrations.RunPython(roles_make, migrations.RunPython.noop)]
