"""Operations: long work on a workspace that its host carries out."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

from common.ids import new_id
from common.work.leases import CountedLeasedRow
from vmbackend.models import ReportedJSON
from workspaces.models.workspace import Workspace


def new_operation_id() -> str:
    return new_id("op")


class OperationKind(models.TextChoices):
    """Kind of an operation (specification, Lifecycle and power). `host.engine.KINDS` lists the steps of each kind.

    `start` also starts a lost machine again; `resize` applies new sizes; `destroy` removes the machine and keeps the
    workspace's row, `delete` removes both. `snapshot` and `fork` keep its state, and leave its status as it is. `move`
    gives it to another host.
    """

    CREATE = "create"
    START = "start"
    STOP = "stop"
    RESTART = "restart"
    PAUSE = "pause"
    RESUME = "resume"
    SLEEP = "sleep"
    WAKE = "wake"
    RESIZE = "resize"
    REINSTALL = "reinstall"
    SNAPSHOT = "snapshot"
    RESTORE = "restore"
    FORK = "fork"
    MOVE = "move"
    DESTROY = "destroy"
    DELETE = "delete"


class OperationState(models.TextChoices):
    """State of an operation. The last three are final.

    queued -> running                           claimed: sets the claim token, the attempt and the lease
    queued -> cancelled                         a delete was requested first
    running -> succeeded, failed, cancelled     by the claim owner only
    running -> queued                           the claim owner died, or the attempt failed and is retried
    queued, running -> failed                   past the deadline
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


# They leave the status of the workspace as it is, unless its owner asked for another one.
KEEPS_STATUS = frozenset({OperationKind.SNAPSHOT, OperationKind.FORK})
# They wait for a host that cannot be reached, past their deadline: accepted is accepted.
WAITS_FOR_HOST = frozenset({OperationKind.STOP, OperationKind.SLEEP, OperationKind.DESTROY, OperationKind.DELETE})
LIVE = (OperationState.QUEUED, OperationState.RUNNING)


class Operation(CountedLeasedRow):
    """One operation on one workspace. The row decides; the Celery task that names it only wakes the host.

    A lost, repeated or late task therefore changes nothing. At most one live operation for each workspace, and beside
    it at most one live delete, which runs after it. Rows are written by `operations.queue` only and are deleted with
    their workspace.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_operation_id, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="operations")
    # The workspace's account, which never changes: staff list the operations of an account by an index.
    account_id = models.CharField(max_length=24, default="", db_default="", editable=False)
    kind = models.CharField(max_length=16, choices=OperationKind.choices)
    # Arguments of the kind; `from`, the status at the request; `facts`, recorded by earlier attempts.
    params: models.Field[Any, Any] = ReportedJSON(shape=dict, default=dict)
    state = models.CharField(max_length=16, choices=OperationState.choices, default=OperationState.QUEUED)
    # The step being carried out, or the last one.
    step = models.CharField(max_length=40, blank=True, default="")
    # The Celery queue of the host that carries it out.
    queue = models.CharField(max_length=64)
    # Whether a delete wants it to end, which it does at its next step.
    cancel_requested = models.BooleanField(default=False)
    actor = models.CharField(max_length=160, blank=True, default="")
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    # When its host was last notified of it.
    notified_at = models.DateTimeField(default=timezone.now)
    # Past it the worker fails the operation, whichever process owns the claim.
    deadline_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    # When it ended, if it failed or took more than half of its time: staff look at these operations.
    attention_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["workspace"],
                condition=Q(state__in=LIVE) & ~Q(kind=OperationKind.DELETE),
                name="one_live_operation_per_workspace",
            ),
            models.UniqueConstraint(
                fields=["workspace"],
                condition=Q(state__in=LIVE) & Q(kind=OperationKind.DELETE),
                name="one_live_delete_per_workspace",
            ),
        ]
        indexes = [
            # For the filters of admin lists.
            models.Index(fields=["kind", "-id"], name="operation_by_kind"),
            models.Index(fields=["state", "-id"], name="operation_by_state"),
            models.Index(fields=["queue", "-id"], name="operation_by_queue"),
            models.Index(fields=["account_id", "-id"], name="operation_of_account"),
            models.Index(fields=["queue", "state"], condition=Q(state__in=LIVE), name="operation_live"),
            models.Index(fields=["deadline_at"], condition=Q(state__in=LIVE), name="operation_deadline"),
            models.Index(fields=["created_at"], condition=Q(finished_at__isnull=True), name="operation_unfinished"),
            models.Index(fields=["attention_at"], condition=Q(attention_at__isnull=False), name="operation_attention"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.workspace_id} ({self.state})"

    @property
    def is_live(self) -> bool:
        return self.state in LIVE
