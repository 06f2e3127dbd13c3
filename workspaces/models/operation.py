"""The operation row: one long step on one workspace. The row is the truth; a Celery task only rings for it.

queued -> running      claim: compare-and-set, sets claim token, attempt, heartbeat
queued -> cancelled    a delete came first
running -> succeeded | failed | cancelled     by the claim's holder only
running -> queued      the holder died and the step may be tried again
queued, running -> failed     past the deadline
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from common.ids import new_id
from workspaces.models.workspace import Workspace


def new_operation_id() -> str:
    return new_id("op")


class OperationKind(models.TextChoices):
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
    DESTROY = "destroy"
    DELETE = "delete"


class OperationState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


LIVE = (OperationState.QUEUED, OperationState.RUNNING)


class Operation(models.Model):
    """At most one live operation for each workspace, and beside it at most one live delete that follows it."""

    id = models.CharField(primary_key=True, max_length=24, default=new_operation_id, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="operations")
    kind = models.CharField(max_length=16, choices=OperationKind.choices)
    params = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=OperationState.choices, default=OperationState.QUEUED)
    step = models.CharField(max_length=40, blank=True, default="")
    queue = models.CharField(max_length=64)
    attempt = models.PositiveIntegerField(default=0)
    claim = models.CharField(max_length=32, blank=True, default="")
    cancel_requested = models.BooleanField(default=False)
    actor = models.CharField(max_length=160, blank=True, default="")
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    notified_at = models.DateTimeField(default=timezone.now)
    heartbeat_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)

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
            models.Index(fields=["queue", "state"], condition=Q(state__in=LIVE), name="operation_live"),
            models.Index(fields=["deadline_at"], condition=Q(state__in=LIVE), name="operation_deadline"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.workspace_id} ({self.state})"

    @property
    def is_live(self) -> bool:
        return self.state in LIVE
