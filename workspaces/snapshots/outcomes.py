"""Waiting for copies, and what became of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from common.errors import DomainError, NotFound
from workspaces.models import Operation, Workspace
from workspaces.models.operation import OperationKind, OperationState
from workspaces.operations import waiting
from workspaces.selectors import NOT_FOUND_MESSAGE
from workspaces.wait_response import error_of

Entry = dict[str, Any]


def wait_for_copies(workspace_ids: Sequence[str], timeout: float) -> None:
    """Wait until the creations of all copies have ended, at most `timeout` seconds."""
    until = time.monotonic() + timeout
    for operation in _creations(workspace_ids).values():
        waiting.wait_for_outcome(operation, max(0.0, until - time.monotonic()))


def copy_entries(workspace_ids: Sequence[str], shown: Callable[[Workspace], Entry]) -> list[Entry]:
    """Return an entry for each copy, in order: what `shown` returns, or its error.

    If every copy has failed, raise the first one's error, with all entries in its details.
    """
    rows = Workspace.objects.select_related("namespace").in_bulk(list(workspace_ids))
    creations = _creations(workspace_ids)
    errors = [_error(rows.get(key), creations.get(key)) for key in workspace_ids]
    entries = [
        _error_entry(key, error) if error is not None else shown(rows[key])
        for key, error in zip(workspace_ids, errors, strict=True)
    ]
    first = errors[0]
    if first is not None and all(error is not None for error in errors):
        raise type(first)(first.message, details={**(first.details or {}), "forks": entries})
    return entries


def _creations(workspace_ids: Sequence[str]) -> dict[str, Operation]:
    """Return the latest creation of each copy, by the copy's id."""
    found = Operation.objects.filter(workspace_id__in=workspace_ids, kind=OperationKind.CREATE)
    return {operation.workspace_id: operation for operation in found.select_related("workspace").order_by("created_at")}


def _error(row: Workspace | None, creation: Operation | None) -> DomainError | None:
    if row is None:
        return NotFound(NOT_FOUND_MESSAGE)
    return error_of(creation) if creation is not None and creation.state == OperationState.FAILED else None


def _error_entry(workspace_id: str, error: DomainError) -> Entry:
    details = {**(error.details or {}), "id": workspace_id}
    return {"error": {"code": error.code, "message": error.message, "details": details}}
