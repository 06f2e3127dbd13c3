"""Errors of the page routes (wire contract, sections 1 and 5)."""

from __future__ import annotations

from typing import Any, ClassVar

from common.errors import Conflict, DomainError, Forbidden, NotFound, QuotaExceeded


class PageSlugTaken(Conflict):
    code = "slug_taken"
    message = "Another page has this slug."


class DeployInProgress(Conflict):
    code = "operation_in_progress"
    message = "A deploy of this page is in progress."


class PageDisabledByStaff(Forbidden):
    """Error of a page that staff disabled. `details.reason`: the reason that they gave."""

    code = "page_disabled"
    message = "The operators of this platform have disabled the page. Only they can enable it."
    example_details: ClassVar[dict[str, Any] | None] = {"reason": "It imitates the login of a bank."}


class ReleaseNotKept(NotFound):
    message = "The page has no such release."


class ExportLimitPassed(DomainError):
    """Error of a folder above a limit. `details`: the limit's name, its value, and the path at which it was passed."""

    code = "payload_too_large"
    status = 413
    message = "The folder is larger than a page may be."


class FolderEmpty(DomainError):
    code = "validation_error"
    status = 400
    message = "The folder contains no file that can be served."


class KeptBytesExceeded(QuotaExceeded):
    message = "The releases of the account's pages take as much space as they may."


class DeployFailed(DomainError):
    """Error of an export that failed on the platform's or the guest's side.

    `details.reason` is the code of the cause.
    """

    code = "VM_UNAVAILABLE"
    status = 503
    message = "The folder could not be exported; try again."
