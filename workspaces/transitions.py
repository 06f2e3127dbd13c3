"""The only way from one state of a workspace to another: a guarded UPDATE. `states.ALLOWED` is the table."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from common.errors import InvalidState
from common.hooks import Hook
from workspaces.models import Workspace
from workspaces.states import ALLOWED, Status
from workspaces.vm_events import publish_vm_event

# Called with the workspace in the transaction of each transition to a state other than `running`.
left_running: Hook[[Workspace], None] = Hook("workspace.left_running")


class TransitionLost(Exception):
    """Loss of a transition: the workspace was no longer in a state that it may leave; nothing was changed."""


def transition(workspace: Workspace, to: Status, *, leaving: frozenset[Status] | None = None, **fields: Any) -> None:
    """Move a workspace to `to`, with `fields` in the same update, if it is in one of `leaving` (default: the table)
    and has the instance's epoch still: of two hosts the former writes nothing.

    The event of a machine that has stopped is published in the same transaction. `ready` is true only in `running`;
    callers set it there. Updates the instance too. Raise TransitionLost if another transition was first; nothing has
    changed then.
    """
    allowed = ALLOWED[to] if leaving is None else leaving & ALLOWED[to]
    fields = {"ready": False, "unresponsive_since": None, "updated_at": timezone.now(), **fields, "status": to}
    before = Status(workspace.status)
    # Without a savepoint: in the caller's transaction, if there is one.
    with transaction.atomic(savepoint=False):
        rows = type(workspace).objects.filter(pk=workspace.pk, epoch=workspace.epoch, status__in=allowed)
        changed = rows.update(**fields)
        if changed:
            for name, value in fields.items():
                setattr(workspace, name, value)
            if to != Status.RUNNING:
                left_running(workspace)
            publish_vm_event(workspace, before)
    if not changed:
        raise TransitionLost(f"{workspace.pk} cannot become {to}")


def require_status(workspace: Workspace, allowed: frozenset[Status], doing: str) -> None:
    """Raise InvalidState, with the status in its details, unless the workspace is in one of the states."""
    if workspace.status not in allowed:
        raise InvalidState(
            f"A workspace that is {workspace.status} cannot {doing}.", details={"status": workspace.status}
        )
