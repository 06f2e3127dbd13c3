"""Orders of certificates are limited for each account: names that are there get theirs."""

from __future__ import annotations

from typing import Any

from django.db import migrations
from django.db.models import OuterRef, Subquery, Value
from django.db.models.functions import Coalesce


def owners_write(apps: Any, schema_editor: Any) -> None:
    names = apps.get_model("domains", "DomainName").objects.filter(name=OuterRef("name"), domain__isnull=False)
    owner = Coalesce(Subquery(names.values("domain__account_id")[:1]), Value(""))
    apps.get_model("certificates", "Certificate").objects.filter(owner="").update(owner=owner)


class Migration(migrations.Migration):
    dependencies = [
        ("domains", "0001_initial"),
        ("certificates", "0002_limits_of_owners_and_contacts"),
    ]

    operations = [migrations.RunPython(owners_write, migrations.RunPython.noop)]
