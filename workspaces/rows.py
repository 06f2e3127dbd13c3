"""Locking and writing a workspace's row, in the caller's transaction. States change only by `transitions.transition`.

Locks are taken in one order: the account (`accounts.services.account_lock`), the workspace's row, its operation's row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils import timezone

from common.errors import NotFound
from workspaces.audit import record
from workspaces.models import Workspace
from workspaces.states import Status


def lock_row(workspace: Workspace) -> None:
    """Hold the row to the end of the transaction. A row that is gone is no error."""
    Workspace.objects.select_for_update(of=("self",)).filter(pk=workspace.pk).first()


def lock_current(workspace: Workspace, fields: Sequence[str] | None = None) -> None:
    """`lock_row`, and read the columns `fields` (default: all) as they are now. Raises NotFound (deleted)."""
    lock_row(workspace)
    try:
        workspace.refresh_from_db(fields=fields)
    except Workspace.DoesNotExist as exc:
        raise NotFound from exc


def write_columns(workspace: Workspace, event: str, detail: str, actor: str, **columns: Any) -> Workspace:
    """Write columns and the audit entry; the instance has the new values too.

    Raises NotFound, with nothing written, where the workspace is deleted or being deleted.
    """
    update_columns(workspace, updated_at=timezone.now(), **columns)
    record(workspace, event, detail, actor=actor)
    return workspace


def update_columns(workspace: Workspace, **columns: Any) -> None:
    """As `write_columns`, without an audit entry and without a new `updated_at`."""
    if not Workspace.objects.filter(pk=workspace.pk).exclude(status=Status.DELETING).update(**columns):
        raise NotFound
    for name, value in columns.items():
        setattr(workspace, name, value)
