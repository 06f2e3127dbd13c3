"""The only writers of namespaces and their activity, beside `namespaces.quota_suspension`.

Each function is one transaction under the account's lock, so that creations of workspaces and changes of their
namespace exclude each other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.models import Account
from accounts.services import account_lock
from common.errors import Conflict, InvalidState, NotFound, ValidationError
from common.request_origin import NO_ORIGIN, RequestOrigin
from namespaces import hooks
from namespaces.audit import record_activity, shown_value
from namespaces.errors import NamespaceExists, NamespaceLimitExceeded
from namespaces.limits import require_plan_allows
from namespaces.models import Namespace, Status, Type
from namespaces.slugs import chosen_slug
from namespaces.status_events import Reason, StatusChange, publish_status_change, require_few_events
from webhooks.subscriptions import namespace_subscriptions_delete

DEFAULT_SLUG = "default"
MAX_NAMESPACES = 100
ACTIVE_EVERY = timedelta(minutes=1)
SUSPENDED_BY_OWNER = "The namespace was suspended."
ACTIONS = {Status.SUSPENDED: "suspended", Status.ACTIVE: "activated", Status.INACTIVE: "deactivated"}
STOPPED_BY_OWNER = "All workspaces of the namespace were stopped."


@dataclass(frozen=True, slots=True)
class NewNamespace:
    """A validated request. `fields`: columns of the row beyond those named. One of name and slug is given."""

    name: str | None = None
    slug: str | None = None
    is_default: bool = False
    resource_limits: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


def default_namespace_create(account: Account) -> None:
    """Create the first namespace of an account, in the transaction that creates the account."""
    Namespace.objects.create(account=account, name="Default", slug=DEFAULT_SLUG, type=Type.DEFAULT, is_default=True)


def account_namespaces_lock(account: Account) -> None:
    """Lock the namespaces of an account before it is deleted: a charge locks a namespace, and not the account."""
    rows = Namespace.objects.select_for_update(of=("self",), no_key=True).filter(account=account)
    list(rows.order_by("pk").values_list("pk"))


@transaction.atomic
def namespace_create(*, account: Account, new: NewNamespace, actor: str, origin: RequestOrigin) -> Namespace:
    """Create a namespace.

    Raise ValidationError (slug), NamespaceExists, NamespaceLimitExceeded, PlanLimitExceeded; nothing is left then.
    """
    account = account_lock(account)
    slug = chosen_slug(new.name, new.slug)
    if _live(account).filter(slug=slug).exists():
        raise NamespaceExists(f"There is a namespace {slug!r} already.", details={"slug": slug})
    return _insert(account, new, slug, actor, origin)


@transaction.atomic
def namespace_ensure(
    *, account: Account, new: NewNamespace, actor: str, origin: RequestOrigin
) -> tuple[Namespace, bool]:
    """Return the namespace with the slug, and whether it was created. An existing one stays as it is, except that it
    may become the default one.

    Raise ValidationError (slug), NamespaceLimitExceeded, PlanLimitExceeded, Conflict (a suspended one does not become
    the default one); nothing is left then.
    """
    account = account_lock(account)
    slug = chosen_slug(new.name, new.slug)
    found = _live(account).filter(slug=slug).first()
    if found is None:
        return _insert(account, new, slug, actor, origin), True
    if new.is_default:
        _make_default(found, actor, origin)
    return found, False


def _insert(account: Account, new: NewNamespace, slug: str, actor: str, origin: RequestOrigin) -> Namespace:
    require_plan_allows(account.plan, new.resource_limits)
    count = _live(account).count()
    if count >= MAX_NAMESPACES:
        raise NamespaceLimitExceeded(
            f"An account has at most {MAX_NAMESPACES} namespaces.", details={"current": count, "max": MAX_NAMESPACES}
        )
    if new.is_default:
        _live(account).filter(is_default=True).update(is_default=False)
    made = Namespace.objects.create(
        account=account,
        name=new.name or slug,
        slug=slug,
        is_default=new.is_default,
        resource_limits=dict(new.resource_limits),
        **new.fields,
    )
    record_activity(made, "created", f"Created as {slug}.", actor=actor, origin=origin)
    return made


def namespace_update(
    *,
    namespace: Namespace,
    changes: Mapping[str, Any],
    status: Status | None = None,
    is_default: bool | None = None,
    actor: str,
    origin: RequestOrigin,
) -> Namespace:
    """Write validated columns and a status. Activity entries say what changed; a request that changes nothing leaves no
    entry.

    `suspended` and `active` do what `namespace_suspend` and `namespace_activate` do; `inactive` is a mark on a
    namespace that is not suspended. `is_default` does what `namespace_make_default` does; a default namespace stays the
    default until another one takes its place.

    Raise PlanLimitExceeded, Conflict (the default one is not suspended, and stays the default), InvalidState
    (`inactive` while suspended), NotFound (deleted concurrently); nothing has changed then.
    """
    with transaction.atomic():
        account = account_lock(namespace.account)
        stored = _stored(namespace)
        require_plan_allows(account.plan, changes.get("resource_limits") or {})
        _write_fields(stored, changes, actor, origin)
        suspends = status == Status.SUSPENDED != stored.status
        if status is not None and status != stored.status:
            _change_status(stored, status, actor, origin)
        if is_default:
            _make_default(stored, actor, origin)
        elif is_default is False and stored.is_default:
            raise Conflict("An account always has a default namespace: make another one the default instead.")
    if suspends:
        hooks.workspaces_stop(stored, actor, SUSPENDED_BY_OWNER)
    return stored


def _write_fields(stored: Namespace, changes: Mapping[str, Any], actor: str, origin: RequestOrigin) -> None:
    changed = {name: (getattr(stored, name), new) for name, new in changes.items() if getattr(stored, name) != new}
    if not changed:
        return
    for name, (_, new) in changed.items():
        setattr(stored, name, new)
    stored.save(update_fields=[*changed, "updated_at"])
    shown = {name: {"from": shown_value(old), "to": shown_value(new)} for name, (old, new) in changed.items()}
    description = f"Changed: {', '.join(sorted(changed))}."
    record_activity(stored, "updated", description, actor=actor, origin=origin, changes=shown)


def namespace_suspend(*, namespace: Namespace, actor: str, origin: RequestOrigin) -> tuple[Namespace, int]:
    """Suspend by hand, and queue the stop of every machine that runs in the namespace. Return the namespace and how
    many. Idempotent.

    The sweep stops the machines that cannot be stopped at once (an operation is in flight, the host does not answer),
    and all of them if this process dies after the commit. Raise Conflict (the default one), NotFound.
    """
    with transaction.atomic():
        account_lock(namespace.account)
        stored = _stored(namespace)
        _change_status(stored, Status.SUSPENDED, actor, origin)
    return stored, sum(hooks.workspaces_stop(stored, actor, SUSPENDED_BY_OWNER))


@transaction.atomic
def namespace_activate(*, namespace: Namespace, actor: str, origin: RequestOrigin) -> Namespace:
    """End a suspension by hand; workspaces are not started again. Idempotent. Raise NotFound.

    A namespace that a quota has suspended stays suspended until the quota has room.
    """
    account_lock(namespace.account)
    stored = _stored(namespace)
    _change_status(stored, Status.ACTIVE, actor, origin)
    return stored


@transaction.atomic
def namespace_make_default(*, namespace: Namespace, actor: str, origin: RequestOrigin) -> Namespace:
    """Make a namespace the account's default one, in place of the former. Idempotent. Raise Conflict (it is suspended
    by hand, which the default one never is) or NotFound; nothing has changed then.
    """
    account_lock(namespace.account)
    stored = _stored(namespace)
    _make_default(stored, actor, origin)
    return stored


def _make_default(stored: Namespace, actor: str, origin: RequestOrigin) -> None:
    """Write the new and the former default, under the account's lock. Raise Conflict."""
    if stored.is_default:
        return
    if stored.suspended_by_hand:
        raise Conflict("A suspended namespace cannot become the default one; activate it first.")
    for former in _live(stored.account).filter(is_default=True):
        _write_fields(former, {"is_default": False}, actor, origin)
    _write_fields(stored, {"is_default": True}, actor, origin)


def _change_status(stored: Namespace, wanted: Status, actor: str, origin: RequestOrigin) -> None:
    """Write the status and its reason, and an activity entry if one of them changes.

    Raise Conflict (the default one is not suspended), InvalidState (`inactive` while suspended), RateLimited.
    """
    if wanted == Status.SUSPENDED and stored.is_default:
        raise Conflict("The default namespace cannot be suspended.")
    if wanted == Status.INACTIVE and stored.status == Status.SUSPENDED:
        raise InvalidState("A suspended namespace must be activated first.", details={"status": stored.status})
    before = (stored.status, stored.suspended_by_hand)
    stored.suspended_by_hand = wanted == Status.SUSPENDED
    stored.status = Status.SUSPENDED if stored.suspended_by_quota else wanted
    if before != (stored.status, stored.suspended_by_hand):
        stored.save(update_fields=["status", "suspended_by_hand", "updated_at"])
        changes = {"status": {"from": before[0], "to": stored.status}}
        record_activity(stored, ACTIONS[wanted], actor=actor, origin=origin, changes=changes)
        change = StatusChange(stored, before[0], Reason.MANUAL)
        if change.event:
            require_few_events(stored.account_id)
        publish_status_change(change)


def namespace_stop_workspaces(*, namespace: Namespace, actor: str, origin: RequestOrigin) -> int:
    """Queue the stop of every machine that runs in it now; the status stays. Return how many."""
    stopped = sum(hooks.workspaces_stop(namespace, actor, STOPPED_BY_OWNER))
    record_activity(namespace, "workspaces_stopped", f"Stopping {stopped}.", actor=actor, origin=origin)
    return stopped


@transaction.atomic
def namespace_delete(
    *, namespace: Namespace, delete_workspaces: bool = False, actor: str, origin: RequestOrigin = NO_ORIGIN
) -> int:
    """Delete a namespace, with its webhooks. Return how many workspaces are moved to the default one, or will be
    deleted. Its pages need no workspace; they are moved to the default one in both cases.

    With `delete_workspaces` the namespace is gone for every caller from now on, and the worker deletes its workspaces
    and then the row (`deletions_continue`). Raise Conflict for the default one, NotFound; nothing has changed then.
    """
    account = account_lock(namespace.account)
    stored = _stored(namespace)
    if stored.is_default:
        raise Conflict("The default namespace cannot be deleted; make another one the default first.")
    default = Namespace.objects.get(account=account, is_default=True)
    hooks.contents_move(stored, default, actor)
    if delete_workspaces:
        count = sum(hooks.workspaces_count(stored))
        stored.deleted_at = timezone.now()
        stored.save(update_fields=["deleted_at", "updated_at"])
        text = f"With its {count} workspaces."
    else:
        count = sum(hooks.workspaces_move(stored, default, actor))
        text = f"Its {count} workspaces were moved to {default.slug}."
    record_activity(stored, "deleted", text, actor=actor, origin=origin)
    namespace_subscriptions_delete(stored.pk)
    if not delete_workspaces or not count:
        stored.delete()
    return count


def deletions_continue() -> int:
    """Queue the deletion of the workspaces left in deleted namespaces, and remove the namespaces that are empty. Return
    how many namespaces are left.
    """
    left = 0
    for namespace in Namespace.objects.filter(deleted_at__isnull=False):
        if sum(hooks.workspaces_delete(namespace)):
            left += 1
        else:
            namespace.delete()
    return left


def namespace_used(namespace: Namespace) -> None:
    """Write `last_active_at`, at most once a minute; in the transaction that creates or starts something in it."""
    now = timezone.now()
    stale = Q(last_active_at=None) | Q(last_active_at__lt=now - ACTIVE_EVERY)
    Namespace.objects.filter(stale, pk=namespace.pk).update(last_active_at=now)


@transaction.atomic
def namespace_save(namespace: Namespace, *, actor: str, changed: Collection[str] | None = None) -> Namespace:
    """Create a namespace or change it, on behalf of staff.

    `changed` names the columns to write of an existing one; by default all but its status and the reasons for it. Other
    columns stay as they are in the locked row. A namespace marked as default replaces the account's former one.

    Raise ValidationError if the account would be left without a default, InvalidState if the namespace is being
    deleted, NotFound if it was deleted since it was read.
    """
    account = account_lock(namespace.account)
    former = Namespace.objects.select_for_update(no_key=True).filter(pk=namespace.pk).first()
    if former is None and not namespace._state.adding:
        raise NotFound("There is no such namespace.")
    if former is not None:
        if former.deleted_at is not None:
            raise InvalidState("The namespace is being deleted.")
        for name in _kept_columns(changed):
            setattr(namespace, name, getattr(former, name))
    others = _live(account).exclude(pk=namespace.pk)
    if namespace.is_default:
        others.filter(is_default=True).update(is_default=False)
    elif not others.filter(is_default=True).exists():
        raise ValidationError(details={"is_default": ["An account needs a default namespace; mark another one first."]})
    namespace.save()
    record_activity(namespace, "saved", actor=actor)
    return namespace


def _kept_columns(changed: Collection[str] | None) -> set[str]:
    """Return the columns that are not written. No form has the first five: quotas, requests and actions write them."""
    kept = {"status", "suspended_by_hand", "suspended_by_quota", "quota_stops_workspaces", "last_active_at"}
    if changed is not None:
        kept |= {field.name for field in Namespace._meta.concrete_fields} - {*changed}
    return kept


def _live(account: Account) -> Any:
    return Namespace.objects.filter(account=account, deleted_at=None)


def _stored(namespace: Namespace) -> Namespace:
    """Return the row as it is now, locked: quotas change it without the account's lock. Raise NotFound."""
    rows = Namespace.objects.select_for_update(of=("self",)).select_related("account")
    found = rows.filter(pk=namespace.pk, deleted_at=None).first()
    if found is None:
        raise NotFound("There is no such namespace.")
    return found
