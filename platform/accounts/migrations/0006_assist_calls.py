"""How many calls of code assistance a day each plan has: 100 on the smaller ones, 1,000 on `pro`, 10,000 on `scale`."""

from django.db import migrations, models

FREE = 100
LARGER = {"pro": 1000, "scale": 10_000}


def fill(apps, schema_editor):
    plan = apps.get_model("accounts", "Plan")
    for code, calls in LARGER.items():
        plan.objects.filter(code=code).update(assist_calls_per_day=calls)


class Migration(migrations.Migration):
    dependencies = [("accounts", "0005_end_sessions")]
    operations = [
        migrations.AddField(
            model_name="plan",
            name="assist_calls_per_day",
            field=models.PositiveIntegerField(
                default=FREE,
                help_text="Of all API keys of an account, by UTC day.",
                verbose_name="code assistance calls per day",
            ),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
