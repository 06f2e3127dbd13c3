"""Deletion: the machine and everything of it, then the row."""

from __future__ import annotations

from django.db import transaction

from accounts.services import account_lock
from workspaces.audit import record
from workspaces.crud.services import delete_row
from workspaces.host.context import Context
from workspaces.models.operation import OperationState
from workspaces.operations import queue
from workspaces.rows import lock_row


def remove_machine(context: Context) -> None:
    context.driver.delete(context.workspace.pk)


def remove_row(context: Context) -> None:
    """The last thing to go, so that a crash before it leaves something that knows what is left."""
    operation = context.operation
    with transaction.atomic():
        account_lock(context.workspace.account)  # its count changes; services lock it before a workspace
        lock_row(context.workspace)
        queue.finish(operation, OperationState.SUCCEEDED)
        record(context.workspace, "deleted", "The workspace and its data were removed.", actor=context.operation.actor)
        delete_row(context.workspace)


STEPS = (("remove_machine", remove_machine), ("remove_row", remove_row))


def delete_failed(context: Context, code: str, sentence: str) -> None:
    """The row stays `deleting`; the reconcile loop queues the next delete."""
    with transaction.atomic():
        queue.finish(context.operation, OperationState.FAILED, code=code, sentence=sentence)
        record(context.workspace, "delete_failed", sentence)


def delete_cancelled(context: Context) -> None:
    """Nothing cancels a delete."""
    raise AssertionError("a delete cannot be cancelled")
