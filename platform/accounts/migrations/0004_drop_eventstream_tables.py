"""Drops the tables of django-eventstream: only its listeners are used, so it is no installed app any more.

They were always empty. A new database has none of them.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations

APP = "django_eventstream"


def drop(apps: Any, schema_editor: Any) -> None:
    for table in ("event", "eventcounter"):
        schema_editor.execute(f'DROP TABLE IF EXISTS "{APP}_{table}"')
    schema_editor.execute("DELETE FROM django_migrations WHERE app = %s", [APP])


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_workspace_count")]

    operations = [migrations.RunPython(drop, migrations.RunPython.noop)]
