"""Tokens of the runtime: signed, not stored. Each names its workspace and the epoch that it was made in.

A gateway token ends by itself; a raw one ends with the epoch, which a rotation and a disable raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.signing import BadSignature, SignatureExpired, TimestampSigner
from django.db.models import QuerySet
from django.utils import timezone

from common.compiled_query import CompiledQuery, in_table_order, loaded_row
from common.errors import Forbidden, Unauthorized
from namespaces.models import Namespace
from workspaces.data_plane.holders import COLUMNS, NAMESPACE_COLUMNS, TokenUnknown
from workspaces.host_away import with_host
from workspaces.models import Workspace
from workspaces.models.workspace import JOINED
from workspaces.states import Status

# The prefix of a token is the kind that it was signed as.
GATEWAY, RAW = "rtg_", "rtr_"
GATEWAY_SECONDS = 3600
# A signature is made of few bytes; nothing longer is looked at.
MAX_LENGTH = 256
UNKNOWN = "The token of the runtime is missing or unknown."
EXPIRED = "The token of the runtime has expired: ask for another one."
REPLACED = "This token of the runtime was replaced by another one."
DISABLED = "The runtime of this workspace is off."
OF_ANOTHER = "This token is that of another workspace."


@dataclass(frozen=True, slots=True)
class RuntimeHolder:
    """The holder of a token of a workspace's runtime. `request.user` of the views.

    The workspace has the columns `data_plane.holders.COLUMNS`, as they were when the token was checked.
    """

    workspace: Workspace

    @property
    def is_authenticated(self) -> bool:
        """Read by DRF."""
        return True

    @property
    def account_id(self) -> str:
        return self.workspace.account_id


def make_gateway_token(workspace: Workspace) -> tuple[str, datetime]:
    """Return a token that ends after GATEWAY_SECONDS, and when."""
    return _signed(workspace, GATEWAY), timezone.now() + timedelta(seconds=GATEWAY_SECONDS)


def make_raw_token(workspace: Workspace) -> str:
    """Return a token without an end of its own."""
    return _signed(workspace, RAW)


def require_holder(token: str, named_id: str = "") -> RuntimeHolder:
    """Return the holder of a token; `named_id` is the workspace that the request's address names, if it names one.

    Raise Unauthorized (none, unknown, expired, or the workspace or its account is not there any more), Forbidden (of
    another workspace, replaced, or the runtime is off). One query.
    """
    return holder_in_epoch(*_read(token), named_id)


def holder_in_epoch(workspace_id: str, epoch: int, named_id: str = "") -> RuntimeHolder:
    """Return the holder of what was signed for a workspace in an epoch of it. Raise what `require_holder` raises."""
    if named_id and named_id != workspace_id:
        raise Forbidden(OF_ANOTHER)
    row = _QUERY.first_row([workspace_id])
    if row is None:
        raise Unauthorized(UNKNOWN)
    workspace = loaded_row(Workspace, _WORKSPACE, row[: len(_WORKSPACE)])
    workspace.namespace = loaded_row(Namespace, _NAMESPACE, row[len(_WORKSPACE) : -len(JOINED)])
    workspace.take_joined(row[-len(JOINED) :])
    if not workspace.runtime_enabled:
        raise Forbidden(DISABLED)
    if workspace.runtime_epoch != epoch:
        raise Forbidden(REPLACED)
    return RuntimeHolder(workspace)


def _signed(workspace: Workspace, kind: str) -> str:
    return kind + _signer(kind).sign(f"{workspace.pk}.{workspace.runtime_epoch}")


def _read(token: str) -> tuple[str, int]:
    """Return the id and the epoch that a token was signed for."""
    kind = token[: len(GATEWAY)]
    if kind not in (GATEWAY, RAW) or len(token) > MAX_LENGTH:
        raise TokenUnknown(UNKNOWN) if token else Unauthorized(UNKNOWN)
    try:
        signed = _signer(kind).unsign(token[len(kind) :], max_age=GATEWAY_SECONDS if kind == GATEWAY else None)
    except SignatureExpired:
        raise Unauthorized(EXPIRED) from None
    except BadSignature:
        raise TokenUnknown(UNKNOWN) from None
    workspace_id, _, epoch = signed.partition(".")
    return workspace_id, int(epoch)


def _signer(kind: str) -> TimestampSigner:
    return TimestampSigner(salt=f"workspaces.runtime.{kind}")


def _rows(ids: Sequence[str]) -> QuerySet[Workspace, tuple[Any, ...]]:
    live = Workspace.objects.filter(pk__in=ids, account__is_active=True).exclude(status=Status.DELETING).order_by()
    return with_host(live).values_list(*_WORKSPACE, *(f"namespace__{name}" for name in _NAMESPACE), *JOINED)


_WORKSPACE = in_table_order(Workspace, "id", *COLUMNS, "runtime_enabled", "runtime_epoch")
_NAMESPACE = in_table_order(Namespace, "id", *NAMESPACE_COLUMNS)
_QUERY = CompiledQuery(_rows)
