"""What the admin searches for: beginnings of names."""

from django.db import migrations, models

from common.index_operations import AddIndexBesideWriters
from common.prefix_keys import PrefixKey


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("cdn", "0001_initial")]
    operations = [
        AddIndexBesideWriters("file", models.Index(PrefixKey("filename"), models.F("id"), name="cdn_file_begins")),
    ]
