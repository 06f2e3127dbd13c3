"""The only writers of accounts, credentials and tokens."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.models import F
from django.utils import timezone

from accounts import tokens
from accounts.actors import Actor
from accounts.errors import AccountGone, BindingMissing
from accounts.hooks import (
    account_created,
    account_deletion_begins,
    account_switched,
    namespace_binding,
    workspace_binding,
)
from accounts.models import Account, Credential, IdempotencyKey, Plan
from accounts.scopes import Scope, ScopeBinding
from common.database_errors import is_database_unavailable
from common.errors import Forbidden, NotFound, ValidationError
from common.ids import random_suffix
from common.saved_rows import delete_unless_deleted, save_unless_deleted
from common.secrets_at_rest import keyed_hash, new_secret

logger = logging.getLogger(__name__)

IDEMPOTENCY_HOURS = 24
# A row refers to one that is deleted, two transactions wait for each other.
_WRITTEN_AT_ONCE = {"23503", "40P01"}
DELETE_TRIES = 5
LAST_USED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential and its secret, which is available only here."""

    credential: Credential
    secret: str


@transaction.atomic
def account_create(*, name: str, plan: str) -> tuple[Account, NewCredential]:
    """Create an account with its default namespace and one account-scope credential.

    Raise ValidationError if there is no such plan; nothing is left then.
    """
    found = Plan.objects.filter(code=plan).first()
    if found is None:
        known = ", ".join(Plan.objects.values_list("code", flat=True))
        raise ValidationError(details={"plan": [f"There is no plan {plan!r}; there are: {known}."]})
    account = Account.objects.create(name=name, plan=found)
    account_created(account)
    return account, credential_issue(account=account, name="first", scope=Scope.ACCOUNT, binding=ScopeBinding())


def account_update(account: Account, *, name: str, plan: Plan) -> Account:
    """Change the name and the plan. Raise NotFound (deleted)."""
    _write_account(account, name=name, plan=plan)
    return account


@transaction.atomic
def account_switch(account: Account, *, is_active: bool) -> Account:
    """Activate or deactivate. While inactive, the account's credentials and tokens are refused, and nothing that it
    publishes is served: public ports, pages, files, custom domains. What else was changed since `account` was read
    stays. Raise NotFound (deleted); nothing has changed then.
    """
    _write_account(account, is_active=is_active)
    account_switched(account)
    return account


def _write_account(account: Account, **columns: Any) -> None:
    """Write these columns, and a new `updated_at`. Raise NotFound (deleted)."""
    columns["updated_at"] = timezone.now()
    if not Account.objects.filter(pk=account.pk).update(**columns):
        raise NotFound("There is no such account.")
    for name, value in columns.items():
        setattr(account, name, value)


def account_delete(account: Account) -> None:
    """Delete an account with its credentials, namespaces and idempotency keys.

    What another transaction writes for it at the same time is deleted, too, if that has committed first; else that
    transaction fails. Raise ProtectedError while it has workspaces; nothing is deleted then.
    """
    for _ in range(DELETE_TRIES - 1):
        try:
            _delete_whole(account)
        except DatabaseError as exc:
            if getattr(exc.__cause__, "sqlstate", "") not in _WRITTEN_AT_ONCE:
                raise
        else:
            return
    _delete_whole(account)


@transaction.atomic
def _delete_whole(account: Account) -> None:
    """Check here, and not at the commit of the caller, that nothing refers to the account."""
    for locked in Account.objects.select_for_update(of=("self",), no_key=True).filter(pk=account.pk):
        account_deletion_begins(locked)
    Account.objects.filter(pk=account.pk).delete()
    connection.check_constraints()


def plan_save(plan: Plan) -> Plan:
    """Create a plan or change it. New limits apply to requests from now on; what exists stays. Raise NotFound (it was
    deleted since it was read)."""
    plan.full_clean(validate_unique=False)
    save_unless_deleted(plan)
    return plan


def plan_delete(plan: Plan) -> None:
    """Delete a plan. Raise ProtectedError while any account has it, NotFound (it was deleted since it was read)."""
    delete_unless_deleted(plan)


def credential_issue(*, account: Account, name: str, scope: Scope, binding: ScopeBinding) -> NewCredential:
    """Issue a credential of any scope; `binding` must fit the scope. For staff, the command line,
    `credential_create`.
    """
    secret = new_secret("sec_")
    credential = Credential.objects.create(
        account=account,
        client_id=f"cli_{random_suffix(24)}",
        secret_hash=keyed_hash(secret),
        name=name,
        scope=scope,
        namespace_id=binding.namespace_id,
        namespace_slug=binding.namespace_slug,
        workspace_id=binding.workspace_id,
    )
    return NewCredential(credential, secret)


def credential_create(
    *, actor: Actor, name: str, scope: Scope, namespace: str | None, workspace: str | None
) -> NewCredential:
    """Create a credential, as `POST /credentials` does. Raise BindingMissing, NotFound (no such namespace or
    workspace).
    """
    binding = binding_of(actor.account, scope, namespace, workspace)
    return credential_issue(account=actor.account, name=name, scope=scope, binding=binding)


def credential_rotate(*, actor: Actor, credential_id: str) -> NewCredential:
    """Issue a new secret for the same client id; the old one and every token minted with it end at once."""
    secret = new_secret("sec_")
    changed = Credential.objects.filter(account=actor.account, id=credential_id).update(
        secret_hash=keyed_hash(secret), epoch=F("epoch") + 1
    )
    if not changed:
        raise NotFound("There is no such credential.")
    return NewCredential(Credential.objects.get(id=credential_id), secret)


def credential_end(credential: Credential) -> None:
    """Set another secret that nobody knows, on behalf of staff: the present one and its tokens are refused from now on.

    The row stays, with its scope and binding, until its owner rotates or deletes it. Raise NotFound.
    """
    changed = Credential.objects.filter(pk=credential.pk).update(
        secret_hash=keyed_hash(new_secret("sec_")), epoch=F("epoch") + 1
    )
    if not changed:
        raise NotFound("There is no such credential.")


def credential_delete(*, actor: Actor, credential_id: str) -> None:
    """Delete the credential: it and its tokens are refused from now on. Raise NotFound."""
    deleted, _ = Credential.objects.filter(account=actor.account, id=credential_id).delete()
    if not deleted:
        raise NotFound("There is no such credential.")


def credential_rename(credential: Credential, *, name: str) -> None:
    """Change the name shown for a credential. Raise NotFound (deleted)."""
    if not Credential.objects.filter(pk=credential.pk).update(name=name):
        raise NotFound("There is no such credential.")
    credential.name = name


def credential_remove(credential: Credential) -> None:
    """Delete a credential on behalf of staff; it and its tokens are refused from now on. Raise NotFound."""
    if not Credential.objects.filter(pk=credential.pk).delete()[0]:
        raise NotFound("There is no such credential.")


def credential_used(credential: Credential) -> None:
    """Record the time of use, at most once a minute for each credential.

    A database that cannot write (its disk is full) refuses no request for that: reading goes on.
    """
    now = timezone.now()
    if credential.last_used_at is None or now - credential.last_used_at > LAST_USED_EVERY:
        try:
            Credential.objects.filter(pk=credential.pk).update(last_used_at=now)
        except DatabaseError as exc:
            if not is_database_unavailable(exc):
                raise
            logger.warning("the use of a credential could not be recorded: %s", exc)


def binding_of(account: Account, scope: Scope, namespace: str | None, workspace: str | None) -> ScopeBinding:
    """Return the binding of a scope. Raise BindingMissing, NotFound."""
    if scope is Scope.NAMESPACE:
        if not namespace:
            raise BindingMissing(details={"namespace": ["Required for the namespace scope."]})
        return namespace_binding.one(account, namespace)
    if scope is Scope.WORKSPACE:
        if not workspace:
            raise BindingMissing(details={"workspace_id": ["Required for the workspace scope."]})
        return workspace_binding.one(account, workspace)
    return ScopeBinding()


def token_mint(
    *, actor: Actor, scope: Scope, namespace: str | None, workspace: str | None, ttl: int, label: str
) -> tokens.Minted:
    """Mint an access token that reaches no further than the credential that mints it.

    Raise Forbidden (wider than the credential), BindingMissing, NotFound (for a credential of the whole account: to
    others what does not exist is outside, too, so that they learn no names). Nothing is stored: the token is signed,
    and ends with its credential or its expiry.
    """
    try:
        binding = binding_of(actor.account, scope, namespace, workspace)
    except NotFound:
        if actor.scope is Scope.ACCOUNT:
            raise
        binding = None
    if binding is None or not _within(actor, scope, binding):
        raise Forbidden("A token cannot reach further than the credential that mints it.")
    return tokens.mint_token(actor=actor, scope=scope, binding=binding, ttl=ttl, label=label)


def _within(actor: Actor, scope: Scope, binding: ScopeBinding) -> bool:
    if actor.scope is Scope.ACCOUNT:
        return True
    if actor.scope is Scope.NAMESPACE:
        return scope is not Scope.ACCOUNT and binding.namespace_id == actor.namespace_id
    return actor.scope is Scope.WORKSPACE and scope is Scope.WORKSPACE and binding.workspace_id == actor.workspace_id


def idempotency_find(*, account: Account, key: str) -> IdempotencyKey | None:
    """Return the key's use within the last 24 hours."""
    since = timezone.now() - timedelta(hours=IDEMPOTENCY_HOURS)
    return IdempotencyKey.objects.filter(account=account, key=key, created_at__gte=since).first()


def idempotency_record(*, account: Account, key: str, fingerprint: str, resource_id: str) -> None:
    """Claim a key for a resource, in the transaction that makes it; the account's row must be locked.

    An expired use of the key is replaced. Raise IntegrityError if another request was first.
    """
    since = timezone.now() - timedelta(hours=IDEMPOTENCY_HOURS)
    IdempotencyKey.objects.filter(account=account, key=key, created_at__lt=since).delete()
    IdempotencyKey.objects.create(account=account, key=key, fingerprint=fingerprint, resource_id=resource_id)


def idempotency_keys_expire() -> int:
    """Delete the keys older than 24 hours. Return how many."""
    since = timezone.now() - timedelta(hours=IDEMPOTENCY_HOURS)
    deleted, _ = IdempotencyKey.objects.filter(created_at__lt=since).delete()
    return deleted


def workspaces_counted(account: Account, count: int) -> None:
    """Store how many workspaces the account has, as counted under its lock."""
    Account.objects.filter(pk=account.pk).update(workspace_count=count)


def workspace_gone(account_id: str) -> None:
    """Count one workspace less, in the transaction that removes it."""
    Account.objects.filter(pk=account_id, workspace_count__gt=0).update(workspace_count=F("workspace_count") - 1)


def account_lock(account: Account) -> Account:
    """Lock the account's row for the rest of the transaction: pools are counted and claimed under it.

    Rows that reference the account (audit entries, events) may still be written: a charge that has locked a namespace
    writes some, and would wait for a request that has locked the account and waits for the namespace.

    Raise AccountGone (deleted).
    """
    rows = Account.objects.select_for_update(of=("self",), no_key=True).select_related("plan")
    try:
        locked: Account = rows.get(pk=account.pk)
    except Account.DoesNotExist:
        raise AccountGone from None
    return locked
