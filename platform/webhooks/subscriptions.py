"""The only writers of subscriptions, but for what comes of attempts (`webhooks.outcomes`, `webhooks.disabling`).

Each function is one transaction; names of hosts are looked up before it. Lock order: the account, the subscription.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from accounts.hooks import namespace_binding
from accounts.models import Account
from accounts.scopes import ScopeBinding
from accounts.services import account_lock
from common.errors import Conflict, NotFound
from common.request_origin import NO_ORIGIN, RequestOrigin
from webhooks.audit import record_audit
from webhooks.disabling import disable_deliveries
from webhooks.errors import WebhookLimitExceeded
from webhooks.events import TEST_EVENT, event_send_to
from webhooks.models import Attempt, Delivery, Subscription
from webhooks.signing_secrets import new_signing_secret
from webhooks.targets import required_host

MAX_WEBHOOKS = 10
REMOVE_BATCH = 2000
REMOVE_AFTER = timedelta(minutes=10)
SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """A validated request. `namespace`: of the one namespace that it is for. `secret`: None for one that is made."""

    url: str
    events: Sequence[str]
    active: bool = True
    description: str = ""
    namespace: ScopeBinding | None = None
    secret: str | None = None


def subscription_create(
    *, account: Account, new: NewSubscription, actor: str, origin: RequestOrigin = NO_ORIGIN
) -> Subscription:
    """Create a webhook; its `secret` is shown this once.

    Raise ValidationError (`url`), WebhookLimitExceeded, NotFound (its namespace was deleted); nothing is left then.
    """
    host = required_host(new.url)
    with transaction.atomic():
        made = _insert(account_lock(account), new, host)
        record_audit(made, "webhook_created", f"Events to {host}.", actor=actor, origin=origin)
    return made


def _insert(account: Account, new: NewSubscription, host: str) -> Subscription:
    count = listed_subscriptions().filter(account=account).count()
    if count >= MAX_WEBHOOKS:
        raise WebhookLimitExceeded(
            f"An account has at most {MAX_WEBHOOKS} webhooks.", details={"current": count, "max": MAX_WEBHOOKS}
        )
    namespace = new.namespace or ScopeBinding()
    _require_namespace(account, namespace)
    return Subscription.objects.create(
        account=account,
        namespace_id=namespace.namespace_id,
        namespace_slug=namespace.namespace_slug,
        url=new.url,
        host=host,
        events=list(new.events),
        active=new.active,
        description=new.description,
        secret=new.secret or new_signing_secret(),
    )


def _require_namespace(account: Account, wanted: ScopeBinding) -> None:
    """Require the namespace, under the account's lock, which a deletion holds, too."""
    if wanted.namespace_id:
        found = namespace_binding.one(account, wanted.namespace_slug)
        if found.namespace_id != wanted.namespace_id:
            raise NotFound("There is no such namespace any more.")


def subscription_update(
    *, subscription: Subscription, changes: Mapping[str, Any], actor: str, origin: RequestOrigin = NO_ORIGIN
) -> Subscription:
    """Change `url`, `events`, `active`, `description`. Idempotent: without a change there is no audit entry.

    Switched on again, it begins without failures; switched off, what is pending is not sent. Raise ValidationError
    (`url`), NotFound (deleted concurrently); nothing has changed then.
    """
    url = changes.get("url", subscription.url)
    host = required_host(url) if url != subscription.url else subscription.host
    with transaction.atomic():
        stored = locked_subscription(subscription)
        changed = {name: value for name, value in changes.items() if getattr(stored, name) != value}
        if changed:
            _write_changes(stored, changed, host)
            named = ", ".join(sorted(changed))
            record_audit(stored, "webhook_updated", f"Changed: {named}.", actor=actor, origin=origin)
    return stored


def _write_changes(stored: Subscription, changed: Mapping[str, Any], host: str) -> None:
    columns = dict(changed)
    if "url" in changed:
        columns |= {"host": host, "failing_since": None}
    if "active" in changed:
        columns |= {"disabled_reason": None, "failing_since": None}
    _write_columns(stored, **columns)
    if not stored.active:
        _disable_pending(stored)


@transaction.atomic
def subscription_rotate(
    *, subscription: Subscription, grace_seconds: int, actor: str, origin: RequestOrigin = NO_ORIGIN
) -> Subscription:
    """Return a new secret, shown this once. The former one signs as well for `grace_seconds`; one before it no more.

    Raise NotFound (deleted concurrently).
    """
    stored = locked_subscription(subscription)
    former = stored.secret if grace_seconds else None
    until = timezone.now() + timedelta(seconds=grace_seconds) if grace_seconds else None
    _write_columns(stored, secret=new_signing_secret(), former_secret=former, former_secret_until=until)
    text = f"The former secret signs for {grace_seconds} more seconds."
    record_audit(stored, "webhook_secret_rotated", text, actor=actor, origin=origin)
    return stored


@transaction.atomic
def subscription_test(*, subscription: Subscription) -> Delivery:
    """Write an event for this webhook alone. Raise Conflict (switched off), NotFound (deleted concurrently)."""
    stored = locked_subscription(subscription)
    if not stored.active:
        raise Conflict("The webhook is switched off; switch it on first.")
    return event_send_to(stored, TEST_EVENT, {"webhook_id": stored.public_id})


@transaction.atomic
def subscription_delete(*, subscription: Subscription, actor: str, origin: RequestOrigin = NO_ORIGIN) -> None:
    """Delete a webhook: nothing more is sent to it, and its place is free.

    Its secrets are deleted at once; its row and its deliveries, which may be many, by `deleted_subscriptions_remove`.
    Raise NotFound (deleted concurrently).
    """
    stored = locked_subscription(subscription)
    subscription_discard(stored)
    record_audit(stored, "webhook_deleted", f"Events to {stored.host}.", actor=actor, origin=origin)


def namespace_subscriptions_delete(namespace_id: str) -> int:
    """Delete the webhooks of a namespace, in the transaction that deletes it. Return how many."""
    rows = (
        live_subscriptions()
        .select_for_update(of=("self",), no_key=True)
        .filter(namespace_id=namespace_id)
        .order_by("pk")
    )
    stored = list(rows)
    for each in stored:
        subscription_discard(each)
        record_audit(each, "webhook_deleted", "With its namespace.", actor=SYSTEM)
    return len(stored)


def subscription_discard(stored: Subscription) -> None:
    """Discard a subscription without an audit entry, in the caller's transaction, which has locked the row."""
    nothing = {"url": "", "secret": "", "former_secret": None, "former_secret_until": None, "direct_key": None}
    _write_columns(stored, active=False, deleted_at=timezone.now(), **nothing)
    _disable_pending(stored)


def deleted_subscriptions_remove() -> int:
    """Remove a batch of the deliveries of deleted webhooks, then the webhooks. Return how many deliveries.

    Very many webhooks that were made and deleted cost as many statements as some. Not at once: a transaction that read
    the webhook before its deletion may still insert a delivery, and would fail, with its fact, if the row is gone.
    """
    removed, emptied = 0, []
    deleted = Subscription.objects.filter(deleted_at__lt=timezone.now() - REMOVE_AFTER).order_by("deleted_at")
    has_deliveries = Exists(Delivery.objects.filter(subscription=OuterRef("pk")))
    for key, has_some in deleted.values_list("pk", has_deliveries)[:REMOVE_BATCH]:
        removed += _remove_deliveries(key, REMOVE_BATCH - removed) if has_some else 0
        if removed >= REMOVE_BATCH:
            break
        emptied.append(key)
    Subscription.objects.filter(pk__in=emptied).delete()
    return removed


@transaction.atomic
def _remove_deliveries(subscription_id: str, most: int) -> int:
    found = Delivery.objects.filter(subscription=subscription_id).order_by("pk")
    keys = list(found.values_list("pk", flat=True)[:most])
    for start in range(0, len(keys), 500):
        some = keys[start : start + 500]
        Attempt.objects.filter(delivery__in=some).delete()
        Delivery.objects.filter(pk__in=some).delete()
    return len(keys)


def live_subscriptions() -> QuerySet[Subscription]:
    """Return all that are not deleted."""
    return Subscription.objects.filter(deleted_at__isnull=True)


def listed_subscriptions() -> QuerySet[Subscription]:
    """Return the subscriptions without the receivers that requests named themselves (`webhooks.direct`)."""
    return live_subscriptions().filter(direct_key__isnull=True)


def locked_subscription(subscription: Subscription) -> Subscription:
    """Return the row as it is now, locked to the end of the transaction. Raise NotFound (deleted)."""
    found = _locked_rows().filter(pk=subscription.pk).first()
    if found is None:
        raise NotFound("There is no such webhook.")
    return found


def account_subscriptions_lock(account: Account) -> None:
    """Lock an account's subscriptions before it is deleted: `hooks` locks a subscription, then deliveries of it, and
    not the account.
    """
    rows = Subscription.objects.select_for_update(of=("self",), no_key=True).filter(account=account)
    list(rows.order_by("pk").values_list("pk"))


def _locked_rows() -> QuerySet[Subscription]:
    """Return the rows that are not deleted, locked. Publishing to them goes on."""
    return live_subscriptions().select_for_update(of=("self",), no_key=True)


def _write_columns(stored: Subscription, **columns: Any) -> None:
    for name, value in columns.items():
        setattr(stored, name, value)
    stored.save(update_fields=[*columns, "updated_at"])


def _disable_pending(stored: Subscription) -> None:
    """End a batch of the pending deliveries, which are not sent; `hooks` ends the others."""
    disable_deliveries(stored.pk)
