"""Errors of the CDN routes (wire contract, section 9)."""

from __future__ import annotations

from common.errors import Conflict, DomainError, NotFound


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


class RestoreWithoutRoom(Conflict):
    """`details`: as those of CdnQuotaExceeded."""

    message = "There is no room to restore the file: the quota was lowered since."


class UploadUnknown(NotFound):
    message = "There is no such upload, or it has ended."


class UploadInProgress(Conflict):
    message = "Another request is sending this file; try again when it has ended."


class OffsetConflict(Conflict):
    """`details.offset`: how many bytes have arrived."""

    message = "The upload goes on at another offset."


class UploadLost(Exception):
    """The permit has ended, or another request has the lease: the request that sends bytes must end at once."""


class ClaimLost(Exception):
    """The file is not processed by this claim any more: it expired, or the file was cancelled."""


class FileNotKept(NotFound):
    message = "There is no such file."
