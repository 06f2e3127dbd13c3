"""The workspace that a request names, for views. Reading one elsewhere (`selectors.get_workspace`) does not count a
call.
"""

from __future__ import annotations

from accounts.actors import Actor
from common.log_context import set_logged_workspace
from workspaces import call_counter, selectors
from workspaces.models import Workspace


def requested_workspace(actor: Actor, identifier: str, *, whole: bool = False) -> Workspace:
    """Return the workspace, as `selectors.get_workspace` does, and count the request as an API call to it. Raise
    NotFound.
    """
    found = selectors.get_workspace(actor, identifier, whole=whole)
    call_counter.count_call(found.pk)
    set_logged_workspace(found.pk)
    return found
