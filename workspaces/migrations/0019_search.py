"""What the admin searches for: beginnings of names and slugs, addresses."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters
from common.prefix_keys import PrefixKey


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workspaces", "0018_console")]
    operations = [
        AddIndexBesideWriters("workspace", models.Index(PrefixKey("name"), models.F("id"), name="workspace_name_begins")),
        AddIndexBesideWriters("workspace", models.Index(PrefixKey("slug"), models.F("id"), name="workspace_slug_begins")),
        AddIndexBesideWriters("workspace", models.Index(fields=["ip"], name="workspace_by_ip")),
    ]
