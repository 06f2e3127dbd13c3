"""Waking a workspace for a request to one of its ports."""

from __future__ import annotations

import time

from workspaces import last_used
from workspaces.models import Workspace
from workspaces.models.operation import OperationKind
from workspaces.operations import queue, waiting
from workspaces.power.services import workspace_wake
from workspaces.states import Status

ACTOR = "request"


def ensure_running(workspace: Workspace, timeout: float) -> bool:
    """Record the use, and wake the workspace where it sleeps; at most `timeout` seconds. True once it runs.

    Concurrent requests share one wake; a workspace that is falling asleep is woken after that. False where it did not
    wake in time or the wake failed. Raises InvalidState (it is stopped, paused, ...), NamespaceSuspended,
    QuotaExceeded, RunningPoolReached, VMUnavailable, OperationInProgress (another operation is in flight).
    """
    last_used.record_use(workspace.pk)
    if workspace.status == Status.RUNNING and workspace.ready:
        return True
    until = time.monotonic() + timeout
    falls_asleep = queue.live_operation(workspace, OperationKind.SLEEP)
    if falls_asleep is not None and waiting.wait_for_outcome(falls_asleep, timeout) is None:
        return False
    operation = workspace_wake(workspace=workspace, actor=ACTOR)
    if operation is not None and waiting.wait_for_outcome(operation, until - time.monotonic()) is None:
        return False
    return bool(Workspace.objects.filter(pk=workspace.pk, status=Status.RUNNING, ready=True).exists())
