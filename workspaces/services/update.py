"""What `PUT /workspace/:id` changes: names and settings that the next start applies."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.services import account_lock
from common.errors import NotFound
from workspaces import errors
from workspaces.images import choice
from workspaces.models import Workspace
from workspaces.services import slugs
from workspaces.services.activity import record
from workspaces.services.quota import amount_of, columns_of


@transaction.atomic
def workspace_update(*, workspace: Workspace, actor: str, changes: dict[str, Any]) -> Workspace:
    """Write validated columns. Raises SlugTaken, InvalidConfig (a desktop that the image or its size does not
    allow), NotFound (deleted meanwhile); nothing has changed then.
    """
    account_lock(workspace.account)
    slug = changes.get("slug")
    if slug and slug != workspace.slug and slugs.is_taken(workspace.account, slug):
        raise errors.SlugTaken(details={"slug": slug})
    if changes.get("desktop_enabled"):
        _require_desktop(workspace)
    if changes:
        columns = {**changes, "updated_at": timezone.now()}
        if not Workspace.objects.filter(pk=workspace.pk).update(**columns):
            raise NotFound
        for name, value in columns.items():
            setattr(workspace, name, value)
        record(workspace, "updated", f"Changed: {', '.join(sorted(changes))}.", actor=actor)
    return workspace


def _require_desktop(workspace: Workspace) -> None:
    choice.require_desktop(workspace.image_pin)
    if short := choice.short_for_desktop(workspace.image_pin, columns_of(amount_of(workspace))):
        raise errors.InvalidConfig(f"Too little for the desktop: {', '.join(sorted(short))}.", details=short)
