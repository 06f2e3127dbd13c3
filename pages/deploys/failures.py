"""Storage of a deploy's failure, so that the request that waits for the deploy gets the same error."""

from __future__ import annotations

from typing import Any

from common.errors import DomainError, NotFound
from pages import errors
from pages.models import PageDeploy
from workspaces import errors as workspace_errors

MESSAGE_LENGTH = 500
# Other codes become DeployFailed.
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
    """Return the columns of a deploy that failed with this error."""
    return {
        "error_code": error.code,
        "error_message": error.message[:MESSAGE_LENGTH],
        "error_details": error.details,
    }


def error_of(deploy: PageDeploy) -> DomainError:
    """Return the error of a deploy that failed, for a response."""
    known = BY_CODE.get(deploy.error_code)
    if known is not None:
        return known(deploy.error_message, details=deploy.error_details)
    return errors.DeployFailed(deploy.error_message, details={"reason": deploy.error_code})
