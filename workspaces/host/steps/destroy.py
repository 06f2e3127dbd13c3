"""Destroy: the machine and its disk are removed, the row stays."""

from __future__ import annotations

from django.db import transaction

from workspaces.audit import record_activity
from workspaces.host.context import Context
from workspaces.host.outcomes import (
    destroy_machine,
    fail_as_observed,
)
from workspaces.models.operation import OperationState
from workspaces.operations import queue
from workspaces.states import Status
from workspaces.transitions import transition


def remove_machine(context: Context) -> None:
    context.driver.delete(context.workspace.pk)


def complete_destroy(context: Context) -> None:
    """Release the address and the resources; the row stays until it is deleted."""
    with transaction.atomic():
        transition(
            context.workspace,
            Status.DESTROYED,
            leaving=frozenset({Status.STOPPING}),
            started_at=None,
            ip=None,
            ssh_host_key="",
            ssh_enabled=False,
            ttl_expires_at=None,
            idle_due_at=None,
            memory_expires_at=None,
            restart_due_at=None,
            error_code="",
            error_message="",
        )
        queue.finish_operation(context.operation, OperationState.SUCCEEDED)
        record_activity(
            context.workspace, "destroyed", "The virtual machine was destroyed.", actor=context.operation.actor
        )


DESTROY_STEPS = (("remove_machine", remove_machine), ("complete", complete_destroy))


def destroy_failed(context: Context, code: str, message: str) -> None:
    """End the machine; the next destroy or delete removes what is left of it."""
    destroy_machine(context)
    fail_as_observed(context, code, message)
