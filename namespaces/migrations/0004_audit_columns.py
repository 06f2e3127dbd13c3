from django.db import migrations


class Migration(migrations.Migration):
    """Audit logs have the same columns (`accounts.audit.AccountEvent`)."""

    dependencies = [
        ("namespaces", "0003_staff_lists"),
    ]

    operations = [
        migrations.RenameField("namespaceactivity", "user_id", "actor"),
        migrations.RenameField("namespaceactivity", "description", "detail"),
    ]
