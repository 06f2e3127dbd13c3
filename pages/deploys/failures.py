"""How a deploy that failed is stored, and how the request that waits for it gets the same error."""

from __future__ import annotations

from typing import Any

from common.errors import DomainError, NotFound
from pages import errors
from pages.models import PageDeploy
from workspaces import errors as workspace_errors

MESSAGE_LENGTH = 500
# All others are DeployFailed.
BY_CODE: dict[str, type[DomainError]] = {
    error.code: error
    for error in (
        errors.ExportLimitPassed,
        errors.FolderEmpty,
        errors.KeptBytesExceeded,
        workspace_errors.PathNotFound,
        workspace_errors.VmNotRunning,
        NotFound,
    )
}


def error_columns(error: DomainError) -> dict[str, Any]:
    """The columns of a deploy that failed so."""
    return {
        "error_code": error.code,
        "error_message": error.message[:MESSAGE_LENGTH],
        "error_details": error.details,
    }


def error_of(deploy: PageDeploy) -> DomainError:
    """The error of a deploy that failed, for a response."""
    known = BY_CODE.get(deploy.error_code)
    if known is not None:
        return known(deploy.error_message, details=deploy.error_details)
    return errors.DeployFailed(deploy.error_message, details={"reason": deploy.error_code})
