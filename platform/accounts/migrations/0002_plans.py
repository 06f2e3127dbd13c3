"""The plans that an installation begins with. Staff edit them as rows afterwards."""

from django.db import migrations

# code, label, workspaces, (cpus, memory, disk) per workspace, owned, running
PLANS = [
    ("tiny", "Tiny", 2, (2, 1024, 2048), (2, 1536, 4096), (1, 1024, 2048)),
    ("free", "Free", 5, (2, 2048, 10240), (4, 4096, 20480), (2, 2048, 20480)),
    ("pro", "Pro", 50, (8, 16384, 102400), (32, 65536, 512000), (16, 32768, 512000)),
    ("scale", "Scale", 1000, (12, 65536, 1048576), (800, 1048576, 10485760), (400, 524288, 10485760)),
]


def add(apps, schema_editor):
    plan = apps.get_model("accounts", "Plan")
    for code, label, count, each, owned, running in PLANS:
        plan.objects.get_or_create(
            code=code,
            defaults={
                "label": label,
                "max_workspaces": count,
                "cpus": each[0],
                "memory_mb": each[1],
                "disk_size_mb": each[2],
                "pool_cpus": owned[0],
                "pool_memory_mb": owned[1],
                "pool_disk_size_mb": owned[2],
                "running_cpus": running[0],
                "running_memory_mb": running[1],
                "running_disk_size_mb": running[2],
            },
        )


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]
    operations = [migrations.RunPython(add, migrations.RunPython.noop)]
