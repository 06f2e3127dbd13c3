from django.db import migrations


class Migration(migrations.Migration):
    """Audit logs have the same columns (`accounts.audit.AccountEvent`)."""

    dependencies = [
        ("workspaces", "0022_lists_of_accounts"),
    ]

    operations = [
        migrations.RenameField("activity", "event", "action"),
        migrations.RenameField("activity", "at", "created_at"),
    ]
