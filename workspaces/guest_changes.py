"""Bringing a running guest to the state of its row, beside other processes that do the same."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from copy import copy

from common.connections import release_connection
from common.errors import NotFound
from workspaces.models import Workspace
from workspaces.states import Status

# Another request may change the row while the guest is being configured: then it is configured once more.
APPLY_ATTEMPTS = 5
# States in which the guest responds.
GUEST_REACHABLE = frozenset({Status.RUNNING, Status.RESUMING, Status.WAKING})


def apply_until_current(
    workspace: Workspace,
    apply_once: Callable[[], bool],
    mark_stale: Callable[[], object],
    *,
    reachable: Collection[Status] = (Status.RUNNING,),
    until: float = math.inf,
) -> bool:
    """Configure the guest until the row is the same before and after, while its status is one of `reachable` and until
    the time `until` (`time.monotonic`). Return False if that was never so, or not for certain: then the change is
    marked as stale.

    `apply_once` returns False if the row has changed since, and gives the instance its present columns. The guest may
    have got an older state after a newer one, which another process applied and marked as applied. So a process that
    does not end with the row's own state leaves the mark. Raise what `apply_once` raises.
    """
    try:
        for _ in range(APPLY_ATTEMPTS):
            if workspace.status not in reachable or time.monotonic() >= until:
                break
            release_connection()
            if apply_once():
                return True
    except NotFound:
        raise
    except Exception:  # the change may have reached the guest, or may still reach it
        mark_stale()
        raise
    mark_stale()
    return False


def current_copy(row: Workspace, **columns: object) -> Workspace:
    """Return a copy of the row with other values of columns. `row` itself stays, as its operation compares its status
    with the database's.
    """
    made = copy(row)
    for name, value in columns.items():
        setattr(made, name, value)
    return made
