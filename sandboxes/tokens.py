"""Sandbox tokens: who holds one. A token is 256 random bits; the database has its keyed hash only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import DEFAULT_DB_ALIAS
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from common.compiled_query import CompiledQuery
from common.errors import Forbidden, Unauthorized
from common.secrets_at_rest import keyed_hash, new_secret
from common.wrong_secrets import count_wrong_secret
from namespaces.models import Namespace
from namespaces.selectors import require_open
from sandboxes.ids import sandbox_id_of
from sandboxes.models import FormerToken, Sandbox, StaffToken
from workspaces.models import Workspace
from workspaces.models.workspace import Kind
from workspaces.states import Status

_LEVEL = re.compile(r"/s/([^/]+)/")
PREFIX = "sbt_"
# The prefix of tokens of staff, which are for terminals alone. The terminal page knows this prefix, too
# (connection.js).
STAFF_PREFIX = "sbs_"
# Columns of the workspace that the sandbox level needs. Above all not the encrypted ones.
COLUMNS = (
    "account_id", "namespace_id", "status", "ready", "ip", "control_port", "ssh_host_key", "applied_disk_size_mb",
)  # fmt: skip
NAMESPACE_COLUMNS = (
    "account_id", "slug", "status", "suspended_by_hand", "suspended_by_quota", "quota_stops_workspaces", "deleted_at",
)  # fmt: skip
# For tokens of staff.
STAFF_PERMISSION = "staff.open_terminal"
UNKNOWN = "The sandbox token is missing or unknown."
ENDED = "This sandbox token was replaced by another one."
OF_ANOTHER = "This token is that of another sandbox."
UNKNOWN_STAFF = "The token is missing or unknown, or has expired."
ACCOUNT_INACTIVE = "The account is not active."


class TokenUnknown(Unauthorized):
    """A token was sent that no sandbox has or has had."""


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The holder of a sandbox's token, who makes a request at the sandbox level. `request.user` of the views."""

    sandbox: Sandbox

    @property
    def is_authenticated(self) -> bool:
        """Read by DRF."""
        return True

    @property
    def workspace(self) -> Workspace:
        """Return the workspace; its columns are `COLUMNS`, as they were when the token was checked."""
        return self.sandbox.workspace

    @property
    def account_id(self) -> str:
        return self.workspace.account_id


@dataclass(frozen=True, slots=True)
class SocketHolder:
    """The opener of a WebSocket: the holder of the sandbox's token, or staff with a token of their own.

    `wakes`: a machine that is asleep is woken for the socket. Plain workspaces are opened by staff alone, who do not
    wake a machine.
    """

    workspace: Workspace
    token_hash: str
    is_staff: bool = False
    wakes: bool = True


def bearer_token(request: HttpRequest) -> str:
    """Return the token of the `Authorization` header; empty without one. Nothing else counts: no cookie, no query."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


@contextmanager
def wrong_tokens_counted(request: HttpRequest) -> Iterator[None]:
    """Within the context a wrong token counts for the address that sent it. Raise TooManyFailures in its place.

    One that was replaced does not count: it is no guess, and its program may go on with it for a while.
    """
    try:
        yield
    except TokenUnknown:
        count_wrong_secret(request)
        raise


def sender_of_sandbox_body(request: HttpRequest) -> str | None:
    """Return the account of a sandbox whose token a request to its level carries. Raise what `require_holder`
    raises.
    """
    found = _LEVEL.match(request.path)
    if found is None:
        return None
    with wrong_tokens_counted(request):
        return require_holder(found[1].lower(), bearer_token(request)).account_id


def new_token() -> str:
    """Return a token, shown once by its caller."""
    return new_secret(PREFIX)


def new_staff_token() -> str:
    """Return a token of staff, shown once by its caller."""
    return new_secret(STAFF_PREFIX)


def require_socket_holder(address_id: str, token: str) -> SocketHolder:
    """Return what `require_holder` returns, for WebSockets, which staff open with tokens of their own. One query.

    `address_id`: of a sandbox; for staff also of a plain workspace.
    """
    if not token.startswith(STAFF_PREFIX):
        holder = require_holder(address_id, token)
        return SocketHolder(holder.workspace, holder.sandbox.token_hash)
    rows = live_staff_tokens().select_related("workspace__namespace", "workspace__account").only("token_hash", *_LOADED)
    live = rows.filter(token_hash__in=_hashes(token))
    found = live.exclude(workspace__status=Status.DELETING).first()
    if found is None:
        raise TokenUnknown(UNKNOWN_STAFF)
    workspace = found.workspace
    if terminal_id_of(workspace) != address_id:
        raise Forbidden(OF_ANOTHER)
    if not workspace.account.is_active:
        raise Forbidden(ACCOUNT_INACTIVE)
    return SocketHolder(workspace, found.token_hash, is_staff=True, wakes=workspace.kind == Kind.SANDBOX)


def terminal_id_of(workspace: Workspace) -> str:
    """Return the id that the address of its terminals has below `/s/`: the sandbox's id, else the workspace's own."""
    return sandbox_id_of(workspace.pk) if workspace.kind == Kind.SANDBOX else workspace.pk


def live_staff_tokens() -> QuerySet[StaffToken]:
    """Return the tokens that have not expired, and whose user may still sign in to the admin and get another."""
    users = get_user_model().objects.with_perm(STAFF_PERMISSION).filter(is_staff=True)
    return StaffToken.objects.filter(expires_at__gt=timezone.now(), user__in=users).order_by()


def require_holder(sandbox_id: str, token: str) -> TokenHolder:
    """Return the holder of the token of the sandbox `sandbox_id`. One query.

    Raise Unauthorized (no token, or one that is unknown, as are those of deleted sandboxes), and Forbidden (it is
    that of another sandbox, or was replaced). Tokens are found by their keyed hash, so that the time of a request
    tells nothing about the tokens that exist.
    """
    hashes = _hashes(token) if token else []
    found = _by_hash(hashes) if hashes else None
    if found is None:
        if hashes and FormerToken.objects.filter(token_hash__in=hashes).exists():
            raise Forbidden(ENDED)
        raise TokenUnknown(UNKNOWN) if hashes else Unauthorized(UNKNOWN)
    if found.pk != sandbox_id:
        raise Forbidden(OF_ANOTHER)
    return TokenHolder(found)


def require_not_suspended(holder: TokenHolder | SocketHolder) -> None:
    """Raise NamespaceSuspended, QuotaExceeded if nothing may run in the sandbox's namespace.

    A namespace whose quota only blocks new starts lets a running sandbox go on, and its holder use it.
    """
    namespace = holder.workspace.namespace
    if namespace.suspended_by_hand or namespace.quota_stops_workspaces:
        require_open(namespace)


def _hashes(token: str) -> list[str]:
    """Return the hashes under the present key of the installation and those that it replaced."""
    return [keyed_hash(token, key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]


def _rows(hashes: Sequence[str]) -> QuerySet[Sandbox, tuple[Any, ...]]:
    """Return the rows of sandboxes of active accounts that are not being deleted."""
    live = Sandbox.objects.filter(token_hash__in=hashes, workspace__account__is_active=True)
    live = live.exclude(workspace__status=Status.DELETING).order_by()
    return live.values_list(
        *_SANDBOX,
        *(f"workspace__{name}" for name in _WORKSPACE),
        *(f"workspace__namespace__{name}" for name in _NAMESPACE),
    )


def _by_hash(hashes: list[str]) -> Sandbox | None:
    """Return the rows as `only` would load them: other columns are read when they are asked for."""
    row = _QUERY.first_row(hashes)
    if row is None:
        return None
    ends = len(_SANDBOX), len(_SANDBOX) + len(_WORKSPACE)
    found = _loaded(Sandbox, _SANDBOX, row[: ends[0]])
    found.workspace = _loaded(Workspace, _WORKSPACE, row[ends[0] : ends[1]])
    found.workspace.namespace = _loaded(Namespace, _NAMESPACE, row[ends[1] :])
    return found


_M = TypeVar("_M", bound=Model)


def _loaded(model: type[_M], names: Sequence[str], values: Sequence[Any]) -> _M:
    return model.from_db(DEFAULT_DB_ALIAS, names, values)


def _in_table_order(model: type[Model], *names: str) -> tuple[str, ...]:
    """Return the columns as `Model.from_db` expects them."""
    return tuple(field.attname for field in model._meta.concrete_fields if field.attname in names)


_SANDBOX = _in_table_order(Sandbox, "id", "token_hash", "workspace_id")
_WORKSPACE = _in_table_order(Workspace, "id", *COLUMNS)
_NAMESPACE = _in_table_order(Namespace, "id", *NAMESPACE_COLUMNS)
_QUERY = CompiledQuery(_rows)
_LOADED = (
    "workspace__kind",
    "workspace__account__is_active",
    *(f"workspace__{name}" for name in COLUMNS),
    *(f"workspace__namespace__{name}" for name in NAMESPACE_COLUMNS),
)
