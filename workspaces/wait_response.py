"""Responses of requests that wait for an operation."""

from __future__ import annotations

from django.conf import settings
from rest_framework.response import Response

from accounts.authentication import ApiRequest
from common.errors import DomainError, NotFound, VMUnavailable
from common.responses import respond
from vmbackend.errors import CapacityExceeded, CopyUnproven, SnapshotNotFound
from workspaces import errors, selectors
from workspaces.host_away import is_away
from workspaces.models import Operation, Snapshot, Workspace
from workspaces.models.operation import OperationState
from workspaces.operations import waiting
from workspaces.serializers import GoingOnResponse, WorkspaceResponse

# Documented refusals that the power routes share.
WRONG_STATE = "`invalid_state` with `details.status`; `operation_in_progress`"
UNAVAILABLE = "`VM_UNAVAILABLE`: the host does not respond, or the operation failed (`details.reason`)"
SUSPENDED = "`namespace_suspended`"
NO_CAPACITY = "`RUNNING_POOL_REACHED`; `quota_exceeded`"

# A copy that could not be loaded answers as such, in place of CREATE_FAILED.
COPY_CODES = frozenset({CopyUnproven.code, errors.SnapshotIncompatible.code})
# Failures of a reinstall have codes of their own; all others are VM_UNAVAILABLE.
BY_CODE: dict[str, type[DomainError]] = {
    error.code: error for error in (errors.StopFailed, errors.OverlayDeleteFailed, errors.RelaunchFailed)
}


def wait_until_finished(operation: Operation) -> bool:
    """Wait for a power operation. Return False if it continues after the wait, or waits for its host itself.

    Raise the error that `BY_CODE` names, else VMUnavailable with the reason's code in its details (it failed), NotFound
    (the snapshot that it makes or needs is gone), or OperationInProgress (a delete cancelled it).
    """
    if is_away(operation.workspace):
        return False
    ended = waiting.wait_for_outcome(operation, settings.ENV.power_seconds)
    if ended is not None:
        require_success(ended)
    return ended is not None


def require_success(operation: Operation) -> None:
    """Raise what `wait_until_finished` raises, unless the operation succeeded."""
    if operation.state == OperationState.FAILED:
        is_gone = operation.error_code == SnapshotNotFound.code
        raise NotFound(operation.error_message) if is_gone else error_of(operation)
    if operation.state == OperationState.CANCELLED:
        raise errors.OperationInProgress("The workspace is being deleted.")


def error_of(operation: Operation) -> DomainError:
    """Return the error with which a failed operation is answered."""
    code, message = operation.error_code, operation.error_message
    details: dict[str, object] = {"reason": code}
    if code == errors.SnapshotIncompatible.code:
        snapshot = Snapshot.objects.filter(pk=operation.params.get("snapshot")).first()
        return errors.SnapshotIncompatible(message, details={"differs": snapshot.differs if snapshot else []})
    if code == CapacityExceeded.code:
        details["resource"] = operation.params.get("lacks", "disk_size_mb")
    return BY_CODE.get(code, VMUnavailable)(message, details=details)


def wait_for_create(operation: Operation, shown_id: str, timeout: float) -> None:
    """Wait `timeout` seconds for a creation. Raise CreateFailed, with `shown_id` in its details, if it failed; what
    `error_of` returns if a copy of a snapshot could not be loaded.
    """
    ended = waiting.wait_for_outcome(operation, timeout)
    if ended is None or ended.state != OperationState.FAILED:
        return
    if ended.error_code in COPY_CODES:
        raise error_of(ended)
    raise errors.CreateFailed(
        ended.error_message,
        details={"id": shown_id, "provisioning": {"code": ended.error_code, "message": ended.error_message}},
    )


def wait_for_removal(operation: Operation, workspace: Workspace) -> bool:
    """Wait for a removal, but not if its host does not respond: the removal runs when the host is back. Return True
    once it is done.
    """
    if workspace.host is None or not workspace.host.answers:
        return False
    ended = waiting.wait_for_outcome(operation, settings.ENV.power_seconds)
    return ended is not None and ended.state != OperationState.FAILED


def stored_response(workspace: Workspace, response: Response) -> Response:
    """Return the response to a change of the row; 202 with `accepted` while the host cannot be reached, as the machine
    gets the change when the host is back.
    """
    if is_away(workspace):
        response.status_code, response.data = 202, {**response.data, "accepted": True}
    return response


def power_response(request: ApiRequest, workspace: Workspace, operation: Operation | None) -> Response:
    """Return `{success, workspace}`; 202 while the operation continues. Raise what `wait_until_finished` raises,
    NotFound.
    """
    ended = operation is None or wait_until_finished(operation)
    current = selectors.get_workspace(request.user, workspace.pk)
    if ended:
        return respond(WorkspaceResponse, workspace=current)
    return respond(GoingOnResponse, 202, accepted=True, workspace=current)
