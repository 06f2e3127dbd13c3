"""The prices that an installation begins with. Staff add newer ones."""

from datetime import UTC, datetime

from django.db import migrations

BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
RATES = {
    "vcpu_hour": "1",
    "gb_hour": "0.5",
    "disk_gb": "0.01",
    "network_gb": "0.1",
    "assist_call": "1",
    "cdn_gb": "0.1",
}


def add(apps, schema_editor):
    rate = apps.get_model("credits", "Rate")
    for unit, price in RATES.items():
        rate.objects.get_or_create(unit=unit, effective_from=BEGINNING, defaults={"credits": price})


class Migration(migrations.Migration):
    dependencies = [("credits", "0001_initial")]
    operations = [migrations.RunPython(add, migrations.RunPython.noop)]
