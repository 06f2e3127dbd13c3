"""Drains: everything on a host moves away, what is off and asleep first, a few at a time."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Case, Exists, OuterRef, QuerySet, When
from django.db.models.functions import Now
from django.utils import timezone

from common.errors import DomainError
from vmbackend.host_states import HostState, host_answers
from vmbackend.models import Host
from workspaces.host_changes import host_state_change
from workspaces.models import Drain, Move, Operation, Workspace
from workspaces.models.move import MoveState
from workspaces.models.operation import LIVE
from workspaces.moves.services import MoveRequest, workspace_move
from workspaces.operations.queue import MOVES_AT_ONCE
from workspaces.states import MOVABLE, NO_MACHINE, Status

logger = logging.getLogger(__name__)

# After a move that failed.
RETRY_AFTER = timedelta(seconds=60)
# Workspaces that are tried in one look, so that those which fit nowhere do not hold up the others of a large host.
LOOKED_AT = 50


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """A drain as staff want it. `waits`: what runs is moved only when it stops or sleeps, or at the deadline."""

    reason: str
    memory: bool = True
    waits: bool = False
    deadline_seconds: int | None = None


@transaction.atomic
def host_drain(*, host: Host, asked: DrainRequest, actor: str) -> Drain:
    """Place nothing new on the host, and move away what is there. One that is being drained goes on as it is.

    Raise InvalidHostState.
    """
    if host.state != HostState.DRAINING:
        host_state_change(host_id=host.pk, to=HostState.DRAINING)
        Drain.objects.filter(host=host).delete()
    until = timezone.now() + timedelta(seconds=asked.deadline_seconds) if asked.deadline_seconds else None
    columns = {"memory": asked.memory, "waits": asked.waits, "deadline_at": until}
    drain, _ = Drain.objects.get_or_create(host=host, defaults={**columns, "actor": actor, "reason": asked.reason})
    return drain


def drain_hosts() -> int:
    """Begin the moves for which there is room now. Return how many. One query if no host is drained."""
    waiting = Drain.objects.filter(host_answers("host__"), host__state=HostState.DRAINING, ended_at=None)
    return sum(_carry_on(drain) for drain in waiting.select_related("host"))


def _carry_on(drain: Drain) -> int:
    left = Workspace.objects.filter(host=drain.host).exclude(status__in=NO_MACHINE)
    if not left.exists():
        Drain.objects.filter(pk=drain.pk, ended_at=None).update(ended_at=Now(), refusals={})
        logger.info("the host %s is empty", drain.host.name)
        return 0
    room = MOVES_AT_ONCE - Move.objects.filter(source=drain.host, state=MoveState.LIVE).count()
    begun, refusals = 0, {}
    for workspace in _next_movable(drain, left)[:LOOKED_AT] if room > 0 else ():
        if begun >= room:
            break
        refusal = _begin(drain, workspace)
        if refusal is None:
            begun += 1
        else:
            refusals[workspace.pk] = {"code": refusal.code, "message": refusal.message}
    if refusals != drain.refusals and room > 0:
        Drain.objects.filter(pk=drain.pk).update(refusals=refusals)
    return begun


def _next_movable(drain: Drain, left: QuerySet[Workspace]) -> QuerySet[Workspace]:
    """Return what can be moved now: those that are off first, then those asleep, then those that run."""
    busy = Operation.objects.filter(workspace=OuterRef("pk"), state__in=LIVE)
    failed = Move.objects.filter(workspace_id=OuterRef("pk"), finished_at__gt=Now() - RETRY_AFTER)
    found = left.filter(~Exists(busy), ~Exists(failed.exclude(state=MoveState.COMMITTED)), status__in=MOVABLE)
    if drain.waits and (drain.deadline_at is None or timezone.now() < drain.deadline_at):
        found = found.exclude(status=Status.RUNNING)
    first = Case(When(status=Status.STOPPED, then=0), When(status=Status.SLEEPING, then=1), default=2)
    return found.order_by(first, "pk").select_related("account", "host")


def _begin(drain: Drain, workspace: Workspace) -> DomainError | None:
    """Move one workspace. Return why not."""
    try:
        workspace_move(workspace=workspace, asked=MoveRequest(drain.reason, memory=drain.memory), actor=drain.actor)
    except DomainError as error:
        return error
    return None
