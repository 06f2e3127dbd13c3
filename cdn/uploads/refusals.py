"""Errors with which files were rejected, as errors of the requests that sent them."""

from __future__ import annotations

from cdn.errors import (
    CdnPolicyViolation,
    CdnQuotaExceeded,
    PermitExpired,
    ProcessingFailed,
    UploadCancelled,
)
from cdn.models import File
from common.errors import Conflict, DomainError, InvalidState, QuotaExceeded

_KINDS: tuple[type[DomainError], ...] = (
    CdnPolicyViolation,
    CdnQuotaExceeded,
    PermitExpired,
    ProcessingFailed,
    Conflict,
    QuotaExceeded,
    UploadCancelled,
)


def refusal_of(file: File) -> DomainError:
    """Return the error of a rejected file."""
    found = file.error or {}
    kind = next((each for each in _KINDS if each.code == found.get("code")), InvalidState)
    return kind(found.get("message"), details=found.get("details"))
