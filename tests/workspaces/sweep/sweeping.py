"""The outcome of each TTL action, and a sweep together with the operations that it starts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from tests.fakehost import FakeHost
from workspaces.host.sweep import sweep_due
from workspaces.models import Workspace
from workspaces.models.workspace import TtlAction
from workspaces.states import Status

RESTING = [Status.RUNNING, Status.PAUSED, Status.SLEEPING, Status.STOPPED]
WITHOUT_MACHINE = [Status.LOST, Status.FAILED, Status.DESTROYED]
AFTER_TTL: dict[TtlAction, dict[Status, Status | None]] = {
    TtlAction.STOP: {Status.RUNNING: Status.STOPPED, Status.PAUSED: Status.STOPPED, Status.SLEEPING: Status.STOPPED},
    TtlAction.PAUSE: {Status.RUNNING: Status.PAUSED},
    TtlAction.REMOVE: dict.fromkeys(RESTING + WITHOUT_MACHINE),
}
HOUR = timedelta(hours=1)


def ago(length: timedelta = timedelta(seconds=1)) -> Any:
    return timezone.now() - length


def sweep_and_settle(host: FakeHost) -> int:
    done = sweep_due()
    host.settle()
    return done


def status_of(row: Workspace) -> str | None:
    return Workspace.objects.filter(pk=row.pk).values_list("status", flat=True).first()
