"""The only writers of accounts, credentials and tokens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from accounts import tokens
from accounts.errors import PinMissing
from accounts.hooks import Pin, account_created, namespace_pin, workspace_pin
from accounts.models import Account, Credential, IdempotencyKey, Plan
from accounts.scopes import Actor, Scope
from common.errors import Forbidden, NotFound, ValidationError
from common.ids import random_suffix
from common.secrets_at_rest import keyed_hash, new_secret

IDEMPOTENCY_HOURS = 24
LAST_USED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential and its secret, which is never to be had again."""

    credential: Credential
    secret: str


@transaction.atomic
def account_create(*, name: str, plan: str) -> tuple[Account, NewCredential]:
    """An account with its default namespace and one account-scope credential.

    Raises ValidationError where there is no such plan; nothing is left then.
    """
    found = Plan.objects.filter(code=plan).first()
    if found is None:
        known = ", ".join(Plan.objects.values_list("code", flat=True))
        raise ValidationError(details={"plan": [f"There is no plan {plan!r}; there are: {known}."]})
    account = Account.objects.create(name=name, plan=found)
    account_created(account)
    return account, credential_issue(account=account, name="first", scope=Scope.ACCOUNT, pin=Pin())


def credential_issue(*, account: Account, name: str, scope: Scope, pin: Pin) -> NewCredential:
    """A credential of any scope; `pin` must fit the scope. For staff, the command line and `credential_create`."""
    secret = new_secret("sec_")
    credential = Credential.objects.create(
        account=account,
        client_id=f"cli_{random_suffix(24)}",
        secret_hash=keyed_hash(secret),
        name=name,
        scope=scope,
        namespace_id=pin.namespace_id,
        namespace_slug=pin.namespace_slug,
        workspace_id=pin.workspace_id,
    )
    return NewCredential(credential, secret)


def credential_create(
    *, actor: Actor, name: str, scope: Scope, namespace: str | None, workspace: str | None
) -> NewCredential:
    """What `POST /credentials` does. Raises PinMissing, NotFound (no such namespace or workspace)."""
    pin = pin_of(actor.account, scope, namespace, workspace)
    return credential_issue(account=actor.account, name=name, scope=scope, pin=pin)


def credential_rotate(*, actor: Actor, credential_id: str) -> NewCredential:
    """A new secret for the same client id; the old one and every token minted with it end at once."""
    secret = new_secret("sec_")
    changed = Credential.objects.filter(account=actor.account, id=credential_id).update(
        secret_hash=keyed_hash(secret), epoch=F("epoch") + 1
    )
    if not changed:
        raise NotFound("There is no such credential.")
    return NewCredential(Credential.objects.get(id=credential_id), secret)


def credential_delete(*, actor: Actor, credential_id: str) -> None:
    """The credential and its tokens are refused from now on. Raises NotFound."""
    deleted, _ = Credential.objects.filter(account=actor.account, id=credential_id).delete()
    if not deleted:
        raise NotFound("There is no such credential.")


def credential_used(credential: Credential) -> None:
    """Remember the use, to the minute: one write a minute for each credential, however many requests."""
    now = timezone.now()
    if credential.last_used_at is None or now - credential.last_used_at > LAST_USED_EVERY:
        Credential.objects.filter(pk=credential.pk).update(last_used_at=now)


def pin_of(account: Account, scope: Scope, namespace: str | None, workspace: str | None) -> Pin:
    """What a scope is held to. Raises PinMissing, NotFound."""
    if scope is Scope.NAMESPACE:
        if not namespace:
            raise PinMissing(details={"namespace": ["Needed for the namespace scope."]})
        return namespace_pin.one(account, namespace)
    if scope is Scope.WORKSPACE:
        if not workspace:
            raise PinMissing(details={"workspaceId": ["Needed for the workspace scope."]})
        return workspace_pin.one(account, workspace)
    return Pin()


def token_mint(
    *, actor: Actor, scope: Scope, namespace: str | None, workspace: str | None, ttl: int, label: str
) -> tokens.Minted:
    """An access token that reaches no further than the credential that mints it.

    Raises Forbidden (wider than the credential), PinMissing, NotFound. Nothing is stored: the token is signed, and
    ends with its credential or its expiry.
    """
    pin = pin_of(actor.account, scope, namespace, workspace)
    if not _within(actor, scope, pin):
        raise Forbidden("A token cannot reach further than the credential that mints it.")
    return tokens.mint(actor=actor, scope=scope, pin=pin, ttl=ttl, label=label)


def _within(actor: Actor, scope: Scope, pin: Pin) -> bool:
    if actor.scope is Scope.ACCOUNT:
        return True
    if actor.scope is Scope.NAMESPACE:
        return scope is not Scope.ACCOUNT and pin.namespace_id == actor.namespace_id
    return actor.scope is Scope.WORKSPACE and scope is Scope.WORKSPACE and pin.workspace_id == actor.workspace_id


def idempotency_find(*, account: Account, key: str) -> IdempotencyKey | None:
    """The key's use within the last 24 hours."""
    since = timezone.now() - timedelta(hours=IDEMPOTENCY_HOURS)
    return IdempotencyKey.objects.filter(account=account, key=key, created_at__gte=since).first()


def idempotency_record(*, account: Account, key: str, fingerprint: str, resource_id: str) -> None:
    """Claim a key for a resource, in the transaction that makes it; the account's row must be locked.

    An expired use of the key gives way. Raises IntegrityError where another request was first.
    """
    since = timezone.now() - timedelta(hours=IDEMPOTENCY_HOURS)
    IdempotencyKey.objects.filter(account=account, key=key, created_at__lt=since).delete()
    IdempotencyKey.objects.create(account=account, key=key, fingerprint=fingerprint, resource_id=resource_id)


def idempotency_forget() -> int:
    """Delete keys older than 24 hours. Returns how many."""
    since = timezone.now() - timedelta(hours=IDEMPOTENCY_HOURS)
    deleted, _ = IdempotencyKey.objects.filter(created_at__lt=since).delete()
    return deleted


def workspaces_counted(account: Account, count: int) -> None:
    """Write down how many workspaces the account has, as counted under its lock."""
    Account.objects.filter(pk=account.pk).update(workspace_count=count)


def workspace_gone(account_id: str) -> None:
    """One workspace fewer, in the transaction that removes it."""
    Account.objects.filter(pk=account_id, workspace_count__gt=0).update(workspace_count=F("workspace_count") - 1)


def account_lock(account: Account) -> Account:
    """Take the account's row for the rest of the transaction: pools are counted and claimed under it.

    PostgreSQL locks the row; SQLite's IMMEDIATE transaction already excludes every other writer.
    """
    locked: Account = Account.objects.select_for_update(of=("self",)).select_related("plan").get(pk=account.pk)
    return locked
