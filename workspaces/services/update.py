"""What `PUT /workspace/:id` changes: names and settings that the next start applies."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.services import account_lock
from workspaces import errors
from workspaces.models import Workspace
from workspaces.services import slugs
from workspaces.services.activity import record


@transaction.atomic
def workspace_update(*, workspace: Workspace, actor: str, changes: dict[str, Any]) -> Workspace:
    """Write validated columns. Raises SlugTaken; nothing has changed then."""
    account_lock(workspace.account)
    slug = changes.get("slug")
    if slug and slug != workspace.slug and slugs.is_taken(workspace.account, slug):
        raise errors.SlugTaken(details={"slug": slug})
    if changes:
        for name, value in changes.items():
            setattr(workspace, name, value)
        workspace.updated_at = timezone.now()
        workspace.save(update_fields=[*changes, "updated_at"])
        record(workspace, "updated", f"Changed: {', '.join(sorted(changes))}.", actor=actor)
    return workspace
