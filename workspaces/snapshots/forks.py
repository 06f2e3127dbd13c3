"""Forks: copies of a workspace. One snapshot is made for all of them, and goes when they are made.

The rows of all copies are inserted at once, so that their pools are claimed whole or not at all. Their creations wait
until the snapshot is complete (`operations.queue`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accounts.actors import Actor
from accounts.scopes import Scope
from accounts.services import account_lock, idempotency_find, idempotency_record, workspaces_counted
from common.errors import Forbidden
from common.idempotency import IdempotencyConflict
from credits.refusals import refusals_announced
from vmbackend.copies import AfterSnapshot
from workspaces import quota
from workspaces.audit import record_activity
from workspaces.crud.places import place_at
from workspaces.crud.services import Created, NewWorkspace, Placed, with_free_address, workspace_insert
from workspaces.crud.source import Source
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind
from workspaces.models.snapshot import SnapshotPurpose
from workspaces.models.workspace import Kind
from workspaces.operations import queue
from workspaces.placement import reserve_on_host
from workspaces.power import require_host
from workspaces.snapshot_rows import snapshot_insert, snapshot_update
from workspaces.snapshots.services import require_state_kept
from workspaces.states import Status

NAME_PART = 240  # of a name that gets a number


@dataclass(frozen=True, slots=True)
class NewForks:
    """A validated request. `fields`: columns of the rows beyond name and kind; `memory` None: as the state allows."""

    count: int = 1
    name: str | None = None
    memory: bool | None = None
    kind: Kind = Kind.WORKSPACE
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forked:
    """Result of a request: the ids of the copies, in order. `replayed`: an earlier request made them."""

    workspace_ids: tuple[str, ...]
    replayed: bool = False


@refusals_announced()
def workspace_fork(
    *, actor: Actor, workspace: Workspace, new: NewForks, key: str | None = None, fingerprint: str = ""
) -> Forked:
    """Make the rows of all copies, and queue the snapshot and their creations; all or nothing.

    Raise Forbidden, IdempotencyConflict, NamespaceSuspended, QuotaExceeded, OperationInProgress, InvalidState,
    ValidationError (memory of a stopped one), the limit errors of a create, VMUnavailable. Nothing is left then.
    """
    if actor.scope is Scope.WORKSPACE:
        raise Forbidden("A workspace-scope credential cannot create workspaces.")
    return with_free_address(lambda: _fork_locked(actor, workspace, new, key, fingerprint))


def _fork_locked(actor: Actor, parent: Workspace, new: NewForks, key: str | None, fingerprint: str) -> Forked:
    account = account_lock(parent.account)
    replayed = _replay(actor, parent, key, fingerprint)
    if replayed is not None:
        return replayed
    memory = require_state_kept(parent, new.memory, "be forked")
    amount, number = quota.applied_amount(parent), new.count
    quota.require_plan_allows(account.plan, amount)
    quota.require_namespace_limits(parent.namespace, amount, new=True, number=number)
    used = quota.account_usage(account)
    quota.require_create_allowed(account.plan, used, amount, number)
    host = reserve_on_host(require_host(parent), amount, number)
    operation, source = _begin(parent, actor.label, memory)
    made = []
    for one in _copies(parent, new):
        placed = Placed(source.chosen, amount, place_at(host), source)
        made.append(workspace_insert(actor, parent.namespace, one, placed))
    workspaces_counted(account, used.records + number)
    ids = tuple(each.workspace.pk for each in made)
    snapshot_update(source.snapshot, forks=list(ids))
    queue.record_facts(operation, forks=list(ids))
    if key is not None:
        idempotency_record(account=account, key=key, fingerprint=fingerprint, resource_id=operation.pk)
    _record(parent, made, actor.label)
    return Forked(ids)


def _begin(parent: Workspace, actor: str, memory: bool) -> tuple[Operation, Source]:
    params = {"from": parent.status, "after": AfterSnapshot.RESUME.value}
    operation = queue.enqueue_operation(parent, OperationKind.FORK, actor=actor, params=params)
    snapshot = snapshot_insert(parent, operation, purpose=SnapshotPurpose.FORK, name="", memory=memory)
    is_cold = not memory and parent.status != Status.STOPPED
    return operation, Source(snapshot, memory, is_cold_on_request=is_cold)


def _copies(parent: Workspace, new: NewForks) -> list[NewWorkspace]:
    name = new.name or parent.name
    if new.count == 1:
        return [NewWorkspace(name=name, kind=new.kind, fields=dict(new.fields))]
    names = [f"{name[:NAME_PART]}-{number}" for number in range(1, new.count + 1)]
    return [NewWorkspace(name=each, kind=new.kind, fields=dict(new.fields)) for each in names]


def _replay(actor: Actor, parent: Workspace, key: str | None, fingerprint: str) -> Forked | None:
    used = idempotency_find(account=actor.account, key=key) if key else None
    if used is None:
        return None
    operation = Operation.objects.filter(pk=used.resource_id, kind=OperationKind.FORK, workspace=parent).first()
    if used.fingerprint != fingerprint or operation is None:
        raise IdempotencyConflict
    return Forked(tuple(operation.params["forks"]), replayed=True)


def _record(parent: Workspace, made: list[Created], actor: str) -> None:
    ids = ", ".join(each.workspace.pk for each in made)
    record_activity(parent, "forked", f"Copies: {ids}.", actor=actor)
    for each in made:
        record_activity(each.workspace, "forked_from", f"{parent.name} ({parent.pk}).", actor=actor)
