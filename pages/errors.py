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
    """`details.reason`: the sentence of those who disabled it."""

    code = "page_disabled"
    message = "The operators of this platform have disabled the page; they alone can enable it."
    example_details: ClassVar[dict[str, Any] | None] = {"reason": "It imitates the login of a bank."}


class ReleaseNotKept(NotFound):
    message = "The page has no such release."


class ExportLimitPassed(DomainError):
    """`details`: the limit, its name and the path at which it was passed."""

    code = "payload_too_large"
    status = 413
    message = "The folder is larger than a page may be."


class FolderEmpty(DomainError):
    code = "validation_error"
    status = 400
    message = "The folder has no file that can be served."


class KeptBytesExceeded(QuotaExceeded):
    message = "The releases of the account's pages take as much as they may."


class DeployFailed(DomainError):
    """The export failed on the platform's or the guest's side. `details.reason` is the code of the cause."""

    code = "VM_UNAVAILABLE"
    status = 503
    message = "The folder could not be exported; try again."
