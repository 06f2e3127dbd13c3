from django.db import migrations


class Migration(migrations.Migration):
    """Audit logs have the same columns (`accounts.audit.AccountEvent`)."""

    dependencies = [
        ("webhooks", "0008_public_ids"),
    ]

    operations = [
        migrations.RenameField("auditentry", "description", "detail"),
    ]
