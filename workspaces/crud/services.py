"""Creating a workspace: the row, its place, its pools and its first operation, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts.actors import Actor
from accounts.scopes import Scope
from accounts.services import account_lock, idempotency_find, idempotency_record, workspace_gone, workspaces_counted
from common.errors import Forbidden, NotFound, VMUnavailable
from common.idempotency import IdempotencyConflict
from credits.enforcement import require_credits
from credits.models import Service
from credits.refusals import refusals_announced
from namespaces import selectors as namespaces
from namespaces.models import Namespace
from namespaces.services import namespace_used
from vmbackend.host_states import HostState
from workspaces import errors, quota, rows
from workspaces.audit import record_activity
from workspaces.crud import slugs
from workspaces.crud.places import (
    Place,
    find_place,
    host_of_retry,
    only_host,
    place_at,
    require_placement_allowed,
    wish_of_create,
)
from workspaces.crud.source import Source, retried_params, source_of, source_sizes
from workspaces.images import choice
from workspaces.images.choice import Choice
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind
from workspaces.models.workspace import Kind
from workspaces.operations import queue
from workspaces.placement import Wish, free_address, reserve_on_host
from workspaces.quota import Amount, amount_of, applied_columns, columns_of
from workspaces.selectors import NOT_FOUND_MESSAGE
from workspaces.snapshot_rows import release_snapshots, snapshot_use
from workspaces.snapshot_selectors import NOT_FOUND_MESSAGE as NO_SNAPSHOT
from workspaces.states import ANY, CREATING, Provisioning, ProvisioningPhase, Status
from workspaces.transitions import require_status, transition
from workspaces.usage import services as usage

ADDRESS_TRIES = 5
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NewWorkspace:
    """A validated create request. `fields` are columns of the row beyond those named.

    `image`: None for the preset's, and without a preset for the platform's default. `sizes`: the columns of resources
    that the request gives; the others come from the preset or are the defaults. `start`: false for a machine that is
    made and stays off; a creation that is tried again starts it. `snapshot`: the id or name of the snapshot that it is
    made from, in place of an image; `memory` false: without its memory. `placement`: what `crud.places` reads.
    """

    image: str | None = None
    preset: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    name: str | None = None
    slug: str | None = None
    namespace: str | None = None
    kind: Kind = Kind.WORKSPACE
    start: bool = True
    snapshot: str | None = None
    memory: bool | None = None
    placement: Mapping[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Created:
    """Result of a create. `replayed`: an earlier request with the same idempotency key made the workspace; `operation`
    is the one to wait for.
    """

    workspace: Workspace
    operation: Operation | None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """Image, size and place of a new workspace, as its limits were checked; and the snapshot that it is made from."""

    chosen: Choice
    amount: Amount
    place: Place
    source: Source | None = None


@refusals_announced()
def workspace_create(*, actor: Actor, new: NewWorkspace, key: str | None = None, fingerprint: str = "") -> Created:
    """Make the row and queue its creation; vmhost makes the machine afterwards.

    With an idempotency key the same request returns the same workspace; other options raise IdempotencyConflict. Raise
    NotFound (the namespace; or the key made a workspace that the credential does not reach), Forbidden (bound
    elsewhere), NamespaceSuspended, QuotaExceeded, SlugTaken, the limit errors of `services.quota`, VMUnavailable, and
    those of `images.choice` and `crud.source`. Nothing is left after any of them.
    """
    if actor.scope is Scope.WORKSPACE:
        raise Forbidden("A workspace-scope credential cannot create workspaces.")
    return with_free_address(lambda: _create_locked(actor, new, key, fingerprint))


def with_free_address(create: Callable[[], T]) -> T:
    """Call `create` in a transaction, and again if another account takes an address between its query and its insert.

    Raise VMUnavailable if that happens too often.
    """
    for _ in range(ADDRESS_TRIES):
        try:
            with transaction.atomic():
                return create()
        except IntegrityError:
            continue
    raise VMUnavailable("No address could be reserved; try again.")


def _create_locked(actor: Actor, new: NewWorkspace, key: str | None, fingerprint: str) -> Created:
    account = account_lock(actor.account)
    replay = _replay(actor, new.kind, key, fingerprint)
    if replay is not None:
        return replay
    source = _source(actor, new)
    chosen, amount = _chosen(new) if source is None else _taken(source, new)
    namespace = namespaces.for_create(actor, source.snapshot.namespace_slug if source else new.namespace)
    require_credits(namespace, Service.SANDBOX)
    quota.require_plan_allows(account.plan, amount)
    require_placement_allowed(account.plan, new.placement)
    quota.require_namespace_limits(namespace, amount, new=True)
    used = quota.account_usage(account)
    quota.require_create_allowed(account.plan, used, amount)
    wish = wish_of_create(actor, namespace, new.placement, name=_name(new, chosen), image=chosen.image)
    place = _place(new, chosen, amount, source, wish)
    made = workspace_insert(actor, namespace, new, Placed(chosen, amount, place, source))
    workspaces_counted(account, used.records + 1)
    namespace_used(namespace)
    if key is not None:
        idempotency_record(account=account, key=key, fingerprint=fingerprint, resource_id=made.workspace.pk)
    return made


def _place(new: NewWorkspace, chosen: Choice, amount: Amount, source: Source | None, wish: Wish) -> Place:
    if source is not None:
        return place_at(reserve_on_host(source.snapshot.host, amount, wish=wish))
    return find_place(amount, chosen.image, wish, may_be_warm=_may_be_warm(new))


def _name(new: NewWorkspace, chosen: Choice) -> str:
    return new.name or slugs.name_from_image(chosen.image)


def workspace_insert(actor: Actor, namespace: Namespace, new: NewWorkspace, placed: Placed) -> Created:
    """Insert the row of a workspace and queue its creation, in the transaction that has checked the limits.

    Raise SlugTaken, NotFound (what it is made from was deleted concurrently).
    """
    workspace, source = _insert(actor, namespace, new, placed), placed.source
    origin = workspace.image if source is None else f"the snapshot {source.snapshot.name or source.snapshot.pk}"
    record_activity(workspace, "created", f"Created from {origin}.", actor=actor.label)
    params = {"start": new.start, **placed.place.take_machine(workspace), **(source.params if source else {})}
    operation = queue.enqueue_operation(workspace, OperationKind.CREATE, actor=actor.label, params=params)
    if source is not None and not snapshot_use(source.snapshot):
        raise NotFound(NO_SNAPSHOT)
    return Created(workspace, operation)


def _source(actor: Actor, new: NewWorkspace) -> Source | None:
    if new.snapshot is None:
        return None
    return source_of(actor, new.snapshot, new.memory, starts=new.start, namespace=new.namespace)


def _taken(source: Source, new: NewWorkspace) -> tuple[Choice, Amount]:
    """Return the image and the size of a workspace that is made from a snapshot. Raise the errors of `crud.source`."""
    choice.require_env(source.chosen.snapshot, source.columns(new.fields)["env"])
    if new.fields.get("desktop_enabled"):
        choice.require_desktop(source.chosen.snapshot)
    return source.chosen, source_sizes(source, new.sizes)


def _chosen(new: NewWorkspace) -> tuple[Choice, Amount]:
    """Return the image and the size that the catalog yields for the request. Raise the errors of `images.choice`."""
    desktop = bool(new.fields.get("desktop_enabled"))
    chosen = choice.choose_image(image=new.image, preset=new.preset, default=settings.ENV.default_image)
    choice.require_env(chosen.snapshot, new.fields.get("env") or {})
    if desktop:
        choice.require_desktop(chosen.snapshot)
    return chosen, Amount(**choice.chosen_sizes(chosen.snapshot, new.sizes, desktop=desktop))


def _replay(actor: Actor, kind: Kind, key: str | None, fingerprint: str) -> Created | None:
    used = idempotency_find(account=actor.account, key=key) if key else None
    if used is None:
        return None
    if used.fingerprint != fingerprint:
        raise IdempotencyConflict
    workspace = Workspace.objects.select_related("namespace").filter(pk=used.resource_id).first()
    if workspace is None:
        raise IdempotencyConflict("The workspace that this idempotency key made has been deleted.")
    if workspace.kind != kind:
        # A field that no route has may make the options of two routes equal.
        raise IdempotencyConflict
    if actor.scope is Scope.NAMESPACE and workspace.namespace_id != actor.namespace_id:
        raise NotFound(NOT_FOUND_MESSAGE)
    return Created(workspace, queue.live_operation(workspace, OperationKind.CREATE), replayed=True)


def _insert(actor: Actor, namespace: Namespace, new: NewWorkspace, placed: Placed) -> Workspace:
    account, chosen, amount = actor.account, placed.chosen, placed.amount
    name = _name(new, chosen)
    if new.slug is not None and slugs.is_taken(account, new.slug):
        raise errors.SlugTaken(details={"slug": new.slug})
    now = timezone.now()
    ttl = new.fields.get("ttl_seconds")
    return rows.insert_row(
        account=account,
        namespace=namespace,
        kind=new.kind,
        name=name,
        slug=new.slug or slugs.free_slug(account, name),
        image=chosen.image,
        catalog_snapshot=chosen.snapshot,
        **columns_of(amount),
        **applied_columns(amount),
        **placed.place.columns,
        placement={name: value for name, value in new.placement.items() if value},
        ttl_expires_at=now + timedelta(seconds=ttl) if ttl else None,
        ttl_length=ttl,
        created_at=now,
        updated_at=now,
        provisioning_updated_at=now,
        **({"preset": new.preset or "", **new.fields} if placed.source is None else placed.source.columns(new.fields)),
    )


def _may_be_warm(new: NewWorkspace) -> bool:
    """Return whether a machine that is ready can become this workspace: its boot is over."""
    return new.start and not new.fields.get("desktop_enabled")


@transaction.atomic
def provisioning_retry(*, actor: str, workspace: Workspace) -> Operation:
    """Retry a failed creation on any host with capacity; with `static_network` on the same one, at the same address;
    from a snapshot on its host.

    Raise SnapshotNotReady (what it was to be made from is gone), InvalidState (it has not failed), NamespaceSuspended,
    RunningPoolReached, VMUnavailable.
    """
    account = account_lock(workspace.account)
    rows.lock_and_read(workspace)
    require_status(workspace, frozenset({Status.FAILED}), "be provisioned again")
    namespaces.require_open(workspace.namespace)
    amount = quota.amount_of(workspace)
    quota.require_running_pool(account.plan, quota.account_usage(account), amount)
    params = retried_params(workspace)
    host = host_of_retry(account, workspace, amount, only=only_host(workspace, params))
    moved: dict[str, Any] = {**applied_columns(amount)}
    if workspace.host_id != host.pk:
        moved |= {"host": host, "epoch": workspace.epoch + 1, "ip": free_address(host)}
    transition(
        workspace,
        Status.QUEUED,
        provisioning_state=Provisioning.QUEUED,
        provisioning_phase=ProvisioningPhase.QUEUED,
        provisioning_progress=0,
        provisioning_message="Queued.",
        provisioning_error_code="",
        provisioning_error="",
        provisioning_updated_at=timezone.now(),
        provisioning_completed_at=None,
        error_code="",
        error_message="",
        **moved,
    )
    record_activity(workspace, "retried", "Creation is tried again.", actor=actor)
    return queue.enqueue_operation(workspace, OperationKind.CREATE, actor=actor, params=params)


def remove_workspace_row(workspace: Workspace) -> None:
    """Remove the row, in the caller's transaction; nothing of the machine is left by then."""
    usage.delete_usage(workspace)
    rows.delete_row(workspace)
    workspace_gone(workspace.account_id)


@transaction.atomic
def workspace_delete(
    *, workspace: Workspace, actor: str, keep_snapshots: bool = False
) -> tuple[Operation | None, bool]:
    """Queue the removal of the machine and its row, and of its snapshots unless they are kept. Return the operation and
    whether a creation was in flight.

    A second delete joins the first. The operation is None if there was no host to ask, or one that was given up:
    the row is gone already.
    """
    found = rows.find_and_lock(workspace.pk, "host")
    if found is None:
        raise Workspace.DoesNotExist
    workspace = found
    creating = workspace.status in CREATING
    no_host = workspace.host is None or workspace.host.state == HostState.GONE
    pending = queue.live_operation(workspace, OperationKind.DELETE)
    if pending is not None and not no_host:
        return pending, workspace.provisioning_phase == ProvisioningPhase.DELETING
    queue.cancel_operations(workspace)
    release_snapshots(workspace, keep=keep_snapshots)
    if no_host:
        remove_workspace_row(workspace)
        return None, False
    fields = {"provisioning_phase": ProvisioningPhase.DELETING} if creating else {}
    transition(workspace, Status.DELETING, leaving=ANY, **fields)
    record_activity(workspace, "delete_requested", actor=actor)
    return queue.enqueue_operation(workspace, OperationKind.DELETE, actor=actor), creating


@transaction.atomic
def workspace_update(*, workspace: Workspace, actor: str, changes: dict[str, Any]) -> Workspace:
    """Write validated columns. Raise SlugTaken, InvalidConfig (a desktop that the image or its size does not allow),
    NotFound (deleted concurrently); nothing has changed then.
    """
    account_lock(workspace.account)
    slug = changes.get("slug")
    if slug and slug != workspace.slug and slugs.is_taken(workspace.account, slug):
        raise errors.SlugTaken(details={"slug": slug})
    if changes.get("desktop_enabled"):
        _require_desktop(workspace)
    if changes:
        if not rows.update_row(workspace, **changes, updated_at=timezone.now()):
            raise NotFound
        record_activity(workspace, "updated", f"Changed: {', '.join(sorted(changes))}.", actor=actor)
    return workspace


def _require_desktop(workspace: Workspace) -> None:
    choice.require_desktop(workspace.catalog_snapshot)
    if short := choice.short_for_desktop(workspace.catalog_snapshot, columns_of(amount_of(workspace))):
        raise errors.InvalidConfig(details=short)
