"""Locking and writing workspace rows, in the caller's transaction. Every write of them is here or in `transitions`.

Locks are taken in one order: the account (`accounts.services.account_lock`), the workspace's row, its operation's row.
A write gives the instance the new values, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import Q
from django.utils import timezone

from common.confinement import is_confined
from common.errors import NotFound
from domains.models import TargetKind
from domains.services import target_removed
from workspaces.audit import record_activity
from workspaces.models import Metered, Workspace
from workspaces.states import Status


def insert_row(**columns: Any) -> Workspace:
    """Insert a workspace. Raise IntegrityError if another one has the slug or the address."""
    return Workspace.objects.create(**columns)


def delete_row(workspace: Workspace) -> None:
    """Delete the row with the rows that reference it (operations, public ports, usage), and disconnect its domain.

    The metering records keep its name.
    """
    if not is_confined():  # a sweep of the control plane does it (workspaces/targets.py)
        target_removed(TargetKind.WORKSPACE, workspace.pk)
    Metered.objects.filter(workspace_id=workspace.pk).update(workspace_name=workspace.name)
    workspace.delete()


def lock_row(workspace: Workspace) -> None:
    """Lock the row to the end of the transaction. A deleted row is no error."""
    # Columns are not read: decrypting and converting them takes longer than the statement.
    Workspace.objects.select_for_update().filter(pk=workspace.pk).values_list("pk").first()


def find_and_lock(workspace_id: str, *related: str) -> Workspace | None:
    """Read the row as it is now, with the relations `related`, and lock it. Return None if it is deleted."""
    rows = Workspace.objects.select_for_update(of=("self",))
    return (rows.select_related(*related) if related else rows).filter(pk=workspace_id).first()


def lock_and_read(workspace: Workspace, fields: Sequence[str] | None = None) -> None:
    """Lock the row and read the columns `fields` (default: all) as they are now, in one query.

    Raise Workspace.DoesNotExist (deleted).
    """
    workspace.refresh_from_db(fields=fields, from_queryset=Workspace.objects.select_for_update(of=("self",)))


def lock_current(workspace: Workspace, fields: Sequence[str] | None = None) -> None:
    """Do what `lock_and_read` does. Raise NotFound (deleted)."""
    try:
        lock_and_read(workspace, fields)
    except Workspace.DoesNotExist as exc:
        raise NotFound from exc


def lock_column(workspace: Workspace, column: str) -> Any:
    """Lock the row and return one of its columns as it is now, in one query. Raise NotFound (deleted)."""
    rows = Workspace.objects.select_for_update(no_key=True).filter(pk=workspace.pk).values_list(column, flat=True)
    try:
        return rows.get()
    except Workspace.DoesNotExist as exc:
        raise NotFound from exc


def write_columns(workspace: Workspace, event: str, detail: str, actor: str, **columns: Any) -> Workspace:
    """Write columns, a new `updated_at` and the audit entry.

    Raise NotFound, with nothing written, if the workspace is deleted or being deleted.
    """
    update_columns(workspace, updated_at=timezone.now(), **columns)
    record_activity(workspace, event, detail, actor=actor)
    return workspace


def update_columns(workspace: Workspace, **columns: Any) -> None:
    """Do what `write_columns` does, without an audit entry and without a new `updated_at`."""
    if not update_if(workspace, ~Q(status=Status.DELETING), **columns):
        raise NotFound


def update_row(workspace: Workspace, **columns: Any) -> bool:
    """Write columns in any state. Return False if the row is deleted."""
    return update_if(workspace, Q(), **columns)


def update_unless_changed(workspace: Workspace, unchanged: Iterable[str], **columns: Any) -> bool:
    """Write columns only if the row still has the instance's values in the columns `unchanged`; False otherwise."""
    return update_if(workspace, Q(**{name: getattr(workspace, name) for name in unchanged}), **columns)


def update_if(workspace: Workspace, condition: Q, **columns: Any) -> bool:
    """Write columns only if the row meets the condition, in one statement. Return False if it does not, is deleted, or
    has another epoch than the instance: of two hosts the former writes nothing.
    """
    if not Workspace.objects.filter(condition, pk=workspace.pk, epoch=workspace.epoch).update(**columns):
        return False
    for name, value in columns.items():
        setattr(workspace, name, value)
    return True


def update_all(condition: Q, **columns: Any) -> int:
    """Write columns of every workspace that meets the condition, in one statement. Return how many."""
    return Workspace.objects.filter(condition).update(**columns)
