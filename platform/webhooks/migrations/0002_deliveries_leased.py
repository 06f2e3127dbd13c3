from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("webhooks", "0001_initial")]

    operations = [
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("lease_until__isnull", False)),
                fields=["lease_until"],
                name="deliveries_leased",
            ),
        ),
    ]
