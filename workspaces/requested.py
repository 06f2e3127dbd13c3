"""The workspace that a request names. For views: reading a workspace elsewhere (`selectors.get`) counts nothing."""

from __future__ import annotations

from accounts.actors import Actor
from workspaces import call_counter, selectors
from workspaces.models import Workspace


def requested_workspace(actor: Actor, identifier: str, *, whole: bool = False) -> Workspace:
    """By id or slug, as `selectors.get`, counting the request as an API call of the workspace. Raises NotFound."""
    found = selectors.get(actor, identifier, whole=whole)
    call_counter.count_call(found.pk)
    return found
