"""Sandbox tokens: who holds one. A token is 256 random bits; the database has its keyed hash only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from common.compiled_query import CompiledQuery, in_table_order, loaded_row
from common.errors import Forbidden, Unauthorized
from common.secrets_at_rest import keyed_hash, new_secret
from namespaces.models import Namespace
from sandboxes.ids import sandbox_id_of
from sandboxes.models import FormerToken, Sandbox, StaffToken
from workspaces.data_plane.holders import (
    COLUMNS,
    NAMESPACE_COLUMNS,
    TokenUnknown,
    bearer_token,
    wrong_tokens_counted,
)
from workspaces.host_away import with_host
from workspaces.models import Workspace
from workspaces.models.workspace import JOINED, Kind
from workspaces.states import Status

_LEVEL = re.compile(r"/s/([^/]+)/")
PREFIX = "sbt_"
# The prefix of tokens of staff, which are for terminals alone. The terminal page knows this prefix, too
# (connection.js).
STAFF_PREFIX = "sbs_"
# For tokens of staff.
STAFF_PERMISSION = "staff.open_terminal"
UNKNOWN = "The sandbox token is missing or unknown."
ENDED = "This sandbox token was replaced by another one."
OF_ANOTHER = "This token is that of another sandbox."
UNKNOWN_STAFF = "The token is missing or unknown, or has expired."
ACCOUNT_INACTIVE = "The account is not active."


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
    related = ("workspace__namespace", "workspace__account", "workspace__host")
    rows = live_staff_tokens().select_related(*related).only("token_hash", *_LOADED)
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


def _hashes(token: str) -> list[str]:
    """Return the hashes under the present key of the installation and those that it replaced."""
    return [keyed_hash(token, key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]


def _rows(hashes: Sequence[str]) -> QuerySet[Sandbox, tuple[Any, ...]]:
    """Return the rows of sandboxes of active accounts that are not being deleted."""
    live = Sandbox.objects.filter(token_hash__in=hashes, workspace__account__is_active=True)
    live = live.exclude(workspace__status=Status.DELETING).order_by()
    return with_host(live, "workspace__").values_list(
        *_SANDBOX,
        *(f"workspace__{name}" for name in _WORKSPACE),
        *(f"workspace__namespace__{name}" for name in _NAMESPACE),
        *JOINED,
    )


def _by_hash(hashes: list[str]) -> Sandbox | None:
    """Return the rows as `only` would load them: other columns are read when they are asked for."""
    row = _QUERY.first_row(hashes)
    if row is None:
        return None
    ends = len(_SANDBOX), len(_SANDBOX) + len(_WORKSPACE), -len(JOINED)
    found = loaded_row(Sandbox, _SANDBOX, row[: ends[0]])
    found.workspace = loaded_row(Workspace, _WORKSPACE, row[ends[0] : ends[1]])
    found.workspace.namespace = loaded_row(Namespace, _NAMESPACE, row[ends[1] : ends[2]])
    found.workspace.take_joined(row[ends[2] :])
    return found


_SANDBOX = in_table_order(Sandbox, "id", "token_hash", "workspace_id")
_WORKSPACE = in_table_order(Workspace, "id", *COLUMNS)
_NAMESPACE = in_table_order(Namespace, "id", *NAMESPACE_COLUMNS)
_QUERY = CompiledQuery(_rows)
_LOADED = (
    "workspace__kind",
    "workspace__account__is_active",
    *(f"workspace__host__{name}" for name in ("name", "state", "state_since", "lease_until", "lease_since")),
    "workspace__host__last_seen_at",
    "workspace__host__created_at",
    *(f"workspace__{name}" for name in COLUMNS),
    *(f"workspace__namespace__{name}" for name in NAMESPACE_COLUMNS),
)
