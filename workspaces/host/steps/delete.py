"""Deletion: the machine and everything of it, then the row."""

from __future__ import annotations

from django.db import transaction

from accounts.services import account_lock
from workspaces.audit import record_activity
from workspaces.crud.services import remove_workspace_row
from workspaces.host.context import Context
from workspaces.models.operation import OperationState
from workspaces.operations import queue
from workspaces.rows import lock_row


def remove_machine(context: Context) -> None:
    context.driver.delete(context.workspace.pk)


def remove_row(context: Context) -> None:
    """Remove the row. This is the last step, so that after a crash before it a row still names what is left."""
    operation = context.operation
    with transaction.atomic():
        account_lock(context.workspace.account)  # its count changes; locked before the workspace, as everywhere
        lock_row(context.workspace)
        queue.finish_operation(operation, OperationState.SUCCEEDED)
        record_activity(
            context.workspace, "deleted", "The workspace and its data were removed.", actor=context.operation.actor
        )
        remove_workspace_row(context.workspace)


STEPS = (("remove_machine", remove_machine), ("remove_row", remove_row))


def delete_failed(context: Context, code: str, message: str) -> None:
    """End the operation as failed. The row stays `deleting`; reconcile queues the next delete."""
    with transaction.atomic():
        queue.finish_operation(context.operation, OperationState.FAILED, code=code, message=message)
        record_activity(context.workspace, "delete_failed", message)


def delete_cancelled(context: Context) -> None:
    """Raise AssertionError: nothing cancels a delete."""
    raise AssertionError("a delete cannot be cancelled")
