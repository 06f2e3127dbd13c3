"""The only writers of API keys and their audit entries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.audit import audit_entry, record_entry
from accounts.models import Account
from accounts.services import account_lock
from assist.models import ApiKey, KeyEvent
from common.errors import Conflict, NotFound
from common.request_origin import NO_ORIGIN, RequestOrigin
from common.secrets_at_rest import keyed_hash, new_secret
from namespaces.models import Namespace
from webhooks.signing_secrets import new_signing_secret

PREFIX = "key_"
SHOWN_CHARACTERS = 12
MAX_KEYS = 100
LAST_USED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key and its secrets, which are available only here."""

    api_key: ApiKey
    key: str
    webhook_secret: str


@transaction.atomic
def api_key_create(
    *, account: Account, name: str, namespace: Namespace | None, actor: str, origin: RequestOrigin = NO_ORIGIN
) -> NewApiKey:
    """Create a key. Without a namespace, the account's default namespace pays for its calls.

    Raise Conflict if the account has as many keys as it may have, and NotFound if the namespace is being deleted;
    nothing is left then.
    """
    locked = account_lock(account)
    count = ApiKey.objects.filter(account=locked).count()
    if count >= MAX_KEYS:
        details = {"current": count, "max": MAX_KEYS}
        raise Conflict(f"An account has at most {MAX_KEYS} API keys; delete one first.", details=details)
    if namespace is not None and not Namespace.objects.filter(pk=namespace.pk, deleted_at=None).exists():
        raise NotFound("There is no such namespace any more.")
    key, webhook_secret = new_secret(PREFIX), new_signing_secret()
    made = ApiKey.objects.create(
        account=locked,
        namespace=namespace,
        name=name,
        key_hash=keyed_hash(key),
        key_prefix=key[:SHOWN_CHARACTERS],
        webhook_secret=webhook_secret,
    )
    record_event(made, "created", actor=actor, origin=origin)
    return NewApiKey(made, key, webhook_secret)


@transaction.atomic
def api_key_rename(*, api_key: ApiKey, name: str, actor: str, origin: RequestOrigin = NO_ORIGIN) -> None:
    """Change the name. Idempotent. Raise NotFound (deleted concurrently)."""
    if ApiKey.objects.filter(~Q(name=name), pk=api_key.pk).update(name=name):
        record_event(api_key, "renamed", actor=actor, origin=origin)
    elif not ApiKey.objects.filter(pk=api_key.pk).exists():
        raise NotFound("There is no such API key.")


@transaction.atomic
def api_key_delete(*, api_key: ApiKey, actor: str, origin: RequestOrigin = NO_ORIGIN) -> None:
    """Delete a key: the next request with it is refused. Raise NotFound (deleted concurrently)."""
    if not ApiKey.objects.filter(pk=api_key.pk).delete()[0]:
        raise NotFound("There is no such API key.")
    record_event(api_key, "deleted", actor=actor, origin=origin)


def api_key_used(api_key: ApiKey) -> None:
    """Note the use, once a minute at most."""
    now = timezone.now()
    last = api_key.last_used_at
    if last is None or abs(now - last) >= LAST_USED_EVERY:
        ApiKey.objects.filter(pk=api_key.pk).update(last_used_at=now)


def record_event(api_key: ApiKey, action: str, *, actor: str, origin: RequestOrigin) -> None:
    """Write the audit entry in the caller's transaction, and a log line."""
    record_entry(audit_entry(KeyEvent, api_key.account_id, api_key.pk, action, actor=actor, origin=origin))
