"""Pages that were rolled back named workspace and folder of the release that was live before."""

from typing import Any

from django.db import migrations
from django.db.models import Exists, OuterRef, Subquery


def follow_live_release(apps: Any, schema_editor: Any) -> None:
    releases = apps.get_model("pages", "PageRelease").objects
    live = releases.filter(page=OuterRef("pk"), number=OuterRef("release"))
    pages = apps.get_model("pages", "Page").objects.filter(Exists(live))
    pages.update(
        source_workspace_id=Subquery(live.values("source_workspace_id")[:1]),
        exported_path=Subquery(live.values("exported_path")[:1]),
    )


class Migration(migrations.Migration):
    dependencies = [("pages", "0003_staff_lists")]
    operations = [migrations.RunPython(follow_live_release, migrations.RunPython.noop)]
