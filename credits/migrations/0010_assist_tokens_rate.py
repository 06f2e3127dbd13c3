"""The price of 1,000 tokens of code assistance: nothing until staff add a rate."""

from datetime import UTC, datetime

from django.db import migrations, models

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
UNIT, PRICE = "assist_tokens", "0"


def add(apps, schema_editor):
    rate = apps.get_model("credits", "Rate")
    rate.objects.get_or_create(unit=UNIT, effective_from=BEGINNING, defaults={"credits": PRICE})


class Migration(migrations.Migration):
    dependencies = [("credits", "0009_page_rate")]
    operations = [
        migrations.AlterField(
            model_name="rate",
            name="unit",
            field=models.CharField(
                choices=[
                    ("vcpu_hour", "an hour of one CPU's time"),
                    ("gb_hour", "a GB of memory for an hour"),
                    ("disk_gb", "a GB read from or written to disk"),
                    ("network_gb", "a GB received or sent"),
                    ("assist_call", "a call of the code assistance API"),
                    ("assist_tokens", "1,000 tokens of the code assistance API"),
                    ("cdn_gb", "a GB published"),
                    ("page_deploy", "a deploy of a page"),
                ],
                max_length=16,
            ),
        ),
        migrations.RunPython(add, migrations.RunPython.noop),
    ]
