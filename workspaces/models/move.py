"""Moves of workspaces from one host to another: what was asked, and what each of both hosts has done."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

from common.ids import new_id
from vmbackend.models import Host, ReportedJSON
from workspaces.states import Status


def new_move_id() -> str:
    return new_id("mv")


class MoveState(models.TextChoices):
    """State of a move. All but the first are final.

    live -> committed           by the control plane, in the transaction that gives the workspace to the target
    live -> failed, cancelled   by the source, or past the deadline
    """

    LIVE = "live"
    COMMITTED = "committed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Move(models.Model):
    """One move. Its operation is carried out by the source; the target's half is its `Arrival`.

    Written by `workspaces.moves.rows` only. While it is live, the target's counters have what it needs there, as if a
    workspace in `counts_as` were on it, and its address is nobody else's. `epoch`: of the assignment that it ends.
    `snapshots`: those of the workspace that go along. `offers`: what the target is to copy, in its order, each
    `{id, bytes}`; the machine is made from the one that has the move's id. `needs`: what the memory in it needs of a
    host. The source writes both, so who reads offers takes those of `offered`.
    """

    id = models.CharField(primary_key=True, max_length=24, default=new_move_id, editable=False)
    # It outlives its workspace and its hosts: staff read what was moved, and hosts remove what they kept.
    workspace_id = models.CharField(max_length=24, editable=False, db_index=True)
    account_id = models.CharField(max_length=24, editable=False)
    operation_id = models.CharField(max_length=24, editable=False)
    source = models.ForeignKey(Host, null=True, on_delete=models.SET_NULL, related_name="moves_from")
    target = models.ForeignKey(Host, null=True, on_delete=models.SET_NULL, related_name="moves_to")
    source_name = models.CharField(max_length=40)
    target_name = models.CharField(max_length=40)
    state = models.CharField(max_length=16, choices=MoveState.choices, default=MoveState.LIVE)
    epoch = models.PositiveBigIntegerField()
    from_status = models.CharField(max_length=16, choices=Status.choices)
    memory = models.BooleanField()
    # At the target.
    address = models.GenericIPAddressField(protocol="IPv4")
    counts_as = models.CharField(max_length=16, choices=Status.choices)
    memory_mb = models.PositiveIntegerField()
    disk_mb = models.PositiveIntegerField()
    snapshots = models.JSONField(default=list)
    offers: models.Field[Any, Any] = ReportedJSON(shape=[{"id": str, "bytes": int}], default=list)
    needs: models.Field[Any, Any] = ReportedJSON(shape=dict, default=dict)
    actor = models.CharField(max_length=160)
    reason = models.CharField(max_length=500)
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    # Since when the workspace has not run, if it ran.
    still_since = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    # The wake or start on the target of one that ran.
    follower_id = models.CharField(max_length=24, blank=True, default="", editable=False)
    # When the source had removed what it kept for it.
    left_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["workspace_id"], condition=Q(state="live"), name="one_live_move"),
            models.UniqueConstraint(fields=["target", "address"], condition=Q(state="live"), name="move_address"),
        ]
        indexes = [
            models.Index(fields=["source", "-created_at"], name="move_from"),
            models.Index(fields=["target", "-created_at"], name="move_to"),
            models.Index(fields=["source"], condition=Q(left_at__isnull=True), name="move_to_leave"),
        ]

    def __str__(self) -> str:
        return f"{self.workspace_id} from {self.source_name} to {self.target_name}"

    @property
    def is_live(self) -> bool:
        return self.state == MoveState.LIVE

    @property
    def first_id(self) -> str:
        """Return the id of the snapshot of the disk that is copied while the machine runs."""
        return f"{self.pk}_first"

    @property
    def entries(self) -> list[str]:
        """Return the ids that snapshots of this move have in the stores of both hosts."""
        return [self.pk, self.first_id, *self.snapshots]

    @property
    def offered(self) -> list[dict[str, Any]]:
        """Return the offers of what belongs to the move: under another id the source could give, or take, what is
        another workspace's.
        """
        return [offer for offer in self.offers if offer["id"] in self.entries]


class ArrivalState(models.TextChoices):
    """State of the target's half. The last two are final."""

    RECEIVING = "receiving"
    READY = "ready"  # the machine is there, off or asleep, under the move's address
    REFUSED = "refused"


class Arrival(models.Model):
    """The target's half of a move. Written by the target alone (`workspaces.host.arrivals`).

    `received`: the ids of the snapshots that are in its store. `differs`: what the memory needs and the target has not.
    """

    move = models.OneToOneField(Move, primary_key=True, on_delete=models.CASCADE, related_name="arrival")
    target = models.ForeignKey(Host, null=True, on_delete=models.SET_NULL, related_name="arrivals")
    state = models.CharField(max_length=16, choices=ArrivalState.choices, default=ArrivalState.RECEIVING)
    received: models.Field[Any, Any] = ReportedJSON(shape=[str], default=list)
    bytes_done = models.BigIntegerField(default=0)
    attempts = models.PositiveIntegerField(default=0)
    error_code = models.CharField(max_length=64, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    differs: models.Field[Any, Any] = ReportedJSON(shape=[dict], default=list)
    ssh_host_key = models.TextField(blank=True, default="")
    control_port = models.PositiveIntegerField(default=0)
    # When the target had removed what is not needed after the move's end.
    settled_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["target"], condition=Q(settled_at__isnull=True), name="arrival_to_settle")]

    def __str__(self) -> str:
        return f"{self.move_id} at {self.target_id}"
