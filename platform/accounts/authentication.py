"""From headers to an `Actor`: client id and secret, or an access token. Shared by DRF and asynchronous views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.db.models import QuerySet
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from accounts import tokens
from accounts.actors import Actor
from accounts.models import Account, Credential
from accounts.scopes import Scope
from accounts.services import credential_used
from common.caller_places import remember_account
from common.compiled_query import CompiledQuery
from common.secrets_at_rest import keyed_hash, matches_hash
from common.wrong_secrets import count_wrong_secret

_NO_CREDENTIAL = keyed_hash("no credential")


def actor_of(request: HttpRequest | Request) -> Actor | None:
    """Return the actor of a request, or None. One query. Client credentials take precedence over a token.

    Raise RateLimited if a wrong secret or token is one too many of this address, or for this client id.
    """
    client_id, secret = request.headers.get("X-Client-ID"), request.headers.get("X-Client-Secret")
    inner = request._request if isinstance(request, Request) else request
    if client_id is not None and secret is not None:
        actor, name = _by_secret(client_id, secret), client_id
        is_guess = actor is None
    else:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return None
        claims = tokens.read_token(token.strip())
        # One that has expired or was revoked is no guess: programs poll with it until they renew it.
        actor, name, is_guess = _by_claims(claims), "", claims is None
    if actor is not None:
        remember_account(inner, actor.account.pk)
    elif is_guess:
        count_wrong_secret(inner, name)
    return actor


def _by_secret(client_id: str, secret: str) -> Actor | None:
    credential = _credential(_BY_CLIENT_ID, client_id) if "\0" not in client_id else None
    # Also compared for an unknown id: the response time must not reveal which ids exist.
    if not matches_hash(secret, credential.secret_hash if credential else _NO_CREDENTIAL) or credential is None:
        return None
    credential_used(credential)
    return Actor(
        account=credential.account,
        scope=Scope(credential.scope),
        credential_id=credential.id,
        label=credential.name or credential.client_id,
        namespace_id=credential.namespace_id,
        namespace_slug=credential.namespace_slug,
        workspace_id=credential.workspace_id,
        epoch=credential.epoch,
    )


def _by_claims(claims: tokens.Claims | None) -> Actor | None:
    if claims is None or claims.has_expired:
        return None
    credential = _credential(_BY_ID, claims.credential_id)
    if credential is None or credential.epoch != claims.epoch:
        return None
    return Actor(
        account=credential.account,
        scope=claims.scope,
        credential_id=credential.id,
        label=claims.label or credential.name or credential.client_id,
        namespace_id=claims.binding.namespace_id,
        namespace_slug=claims.binding.namespace_slug,
        workspace_id=claims.binding.workspace_id,
        epoch=credential.epoch,
        via="token",
        expires=claims.expires,
    )


def _finder(column: str) -> CompiledQuery:
    def rows(values: Sequence[str]) -> QuerySet[Credential, tuple[Any, ...]]:
        live = Credential.objects.filter(account__is_active=True, **{column: values[0]}).order_by()
        return live.values_list(*_CREDENTIAL, *(f"account__{name}" for name in _ACCOUNT))

    return CompiledQuery(rows)


_CREDENTIAL, _ACCOUNT = (
    tuple(field.attname for field in model._meta.concrete_fields) for model in (Credential, Account)
)
# Unique columns. Asked by each request: writing the statement took the ORM a quarter of a request's time.
_BY_CLIENT_ID, _BY_ID = _finder("client_id"), _finder("id")


def _credential(finder: CompiledQuery, value: str) -> Credential | None:
    """Return the credential with its account, which is active."""
    row = finder.first_row([value])
    if row is None:
        return None
    found = Credential.from_db(DEFAULT_DB_ALIAS, _CREDENTIAL, row[: len(_CREDENTIAL)])
    found.account = Account.from_db(DEFAULT_DB_ALIAS, _ACCOUNT, row[len(_CREDENTIAL) :])
    return found


class ApiRequest(Request):
    """The type of a request that passed ScopePermission, so that its user is an Actor."""

    user: Actor  # type: ignore[assignment]


class AccountAuthentication(BaseAuthentication):
    """`actor_of` for DRF. Requests without an actor are refused by the permission class."""

    def authenticate(self, request: Request) -> tuple[Actor, None] | None:
        actor = actor_of(request)
        return (actor, None) if actor else None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="api"'
