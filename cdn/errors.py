"""Errors of the CDN routes (wire contract, section 9)."""

from __future__ import annotations

from common.errors import Conflict, DomainError, NotFound, RateLimited


class CdnQuotaExceeded(DomainError):
    """`details`: limit, used, reserved, requested, scope, and the name of the limit."""

    code = "cdn_quota_exceeded"
    status = 402
    message = "The CDN has no room left for this."


class CdnPolicyViolation(DomainError):
    """`details`: rule, limit, actual."""

    code = "cdn_policy_violation"
    status = 400
    message = "The policy does not allow this file."


class RestoreWithoutRoom(CdnQuotaExceeded):
    message = "There is no room to restore the file: the quota was lowered since."


class UploadUnknown(NotFound):
    message = "There is no such upload, or it has ended."


class UploadEnded(UploadUnknown):
    """The address is right: it is no guess."""


class UploadInProgress(Conflict):
    message = "Another request is sending this file; try again when it has ended."


class UploadsAtOnce(RateLimited):
    message = "This account sends too many files at once."


class OffsetConflict(Conflict):
    """`details.offset`: how many bytes have arrived."""

    message = "The upload goes on at another offset."


class UploadLost(Exception):
    """The permit has ended, or another request has the lease: the request that sends bytes must end at once."""


class FileNotKept(NotFound):
    message = "There is no such file."


class ProcessingFailed(DomainError):
    """Recorded with the file; no response has it."""

    code = "processing_failed"
    status = 503
    message = "The file could not be looked at in time; upload it again."


class PermitExpired(DomainError):
    """Recorded with the file."""

    code = "permit_expired"
    status = 404
    message = "The upload did not end in time."


class UploadCancelled(DomainError):
    """Recorded with the file."""

    code = "cancelled"
    status = 409
    message = "The file was deleted before it was published."
