from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("webhooks", "0002_deliveries_leased")]

    operations = [
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("status", "failed")),
                fields=["subscription", "id"],
                name="deliveries_failed",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("status", "disabled")),
                fields=["subscription", "id"],
                name="deliveries_disabled",
            ),
        ),
    ]
