"""The triggers once more: SQLite's REPLACE put another entry in the place of one with the same submission and object."""

from typing import Any

from django.db import migrations

from staff.models import AUDIT


def triggers_renew(apps: Any, schema_editor: Any) -> None:
    AUDIT.unprotect(apps, schema_editor)
    AUDIT.protect(apps, schema_editor)


class Migration(migrations.Migration):
    dependencies = [("staff", "0002_second_factor")]

    operations = [migrations.RunPython(triggers_renew, migrations.RunPython.noop)]
