"""Sums by tick of a namespace, of what was charged before this version too."""

from django.db import migrations, models

import credits.amounts
from common.bulk_rows import rows_add
from credits.prices import PriceTable

CHUNK = 20_000
SUMS = ("records", "cpu_time_ns", "memory_mb_ms", "disk_bytes", "network_bytes", "credits")
AMOUNTS = SUMS[1:-1]


def fill_sums(apps, schema_editor):
    position = apps.get_model("workspaces", "ChargePosition").objects.first()
    if position is None:
        return
    prices = PriceTable(apps.get_model("credits", "Rate").objects.all())
    records = apps.get_model("workspaces", "MeterRecord").objects.filter(id__lte=position.record_id).order_by("id")
    columns = ("id", "metered__namespace_id", "tick", "laterecord__counted_at", *AMOUNTS)
    done = position.first_record_id
    while rows := list(records.filter(id__gt=done).values_list(*columns)[:CHUNK]):
        done = rows[-1][0]
        write_sums(apps, rows, prices)


def write_sums(apps, rows, prices):
    sums = {}
    for _, namespace, tick, late, *amounts in rows:
        each = sums.setdefault((namespace, tick if late is None else late), [0] * len(SUMS))
        for number, value in enumerate((1, *amounts, prices.stored_price(tick, *amounts))):
            each[number] += value
    model = apps.get_model("workspaces", "NamespaceTick")
    rows_add(model, ("namespace_id", "tick"), SUMS, [(*key, *sums[key]) for key in sorted(sums)])


class Migration(migrations.Migration):
    dependencies = [
        ("workspaces", "0014_record_writers"),
        ("credits", "0003_ledger"),
    ]

    operations = [
        migrations.CreateModel(
            name="NamespaceTick",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("records", models.BigIntegerField()),
                ("cpu_time_ns", models.BigIntegerField()),
                ("memory_mb_ms", models.BigIntegerField()),
                ("disk_bytes", models.BigIntegerField()),
                ("network_bytes", models.BigIntegerField()),
                ("credits", credits.amounts.CreditsField()),
                ("namespace_id", models.CharField(max_length=24)),
                ("tick", models.BigIntegerField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("namespace_id", "tick"), name="namespace_tick_once")],
            },
        ),
        migrations.RunPython(fill_sums, migrations.RunPython.noop),
    ]
