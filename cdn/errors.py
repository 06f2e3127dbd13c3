"""Errors of the CDN routes (wire contract, section 9)."""

from __future__ import annotations

from common.errors import Conflict, DomainError, NotFound, RateLimited


class CdnQuotaExceeded(DomainError):
    """Error of a limit without room.

    `details`: limit, used, reserved, requested, scope, and the name of the limit.
    """

    code = "cdn_quota_exceeded"
    status = 402
    message = "A limit of the CDN has no room left for this."


class CdnPolicyViolation(DomainError):
    """Error of a file that the policy does not allow. `details`: rule, limit, actual."""

    code = "cdn_policy_violation"
    status = 400
    message = "The policy does not allow this file."


class RestoreWithoutRoom(CdnQuotaExceeded):
    message = "There is no room to restore the file, because the quota was lowered meanwhile."


class UploadUnknown(NotFound):
    message = "There is no such upload, or it has ended."


class UploadEnded(UploadUnknown):
    """Error of an upload that has ended. The address is right, so it does not count as a guess."""


class UploadInProgress(Conflict):
    message = "Another request is sending this file; try again when it has ended."


class UploadsAtOnce(RateLimited):
    message = "This account sends too many files at once."


class OffsetConflict(Conflict):
    """Error of a wrong offset. `details.offset`: how many bytes have arrived."""

    message = "The upload continues at another offset (`details.offset`)."


class UploadLost(Exception):
    """Signal that the permit has ended, or another request has the lease: the request that sends bytes must end at
    once.
    """


class FileNotKept(NotFound):
    message = "There is no such file."


class ProcessingFailed(DomainError):
    """Error that is recorded with the file; no response has it."""

    code = "processing_failed"
    status = 503
    message = "The file could not be processed in time; upload it again."


class PermitExpired(DomainError):
    """Error that is recorded with the file."""

    code = "permit_expired"
    status = 404
    message = "The upload did not end in time."


class UploadCancelled(DomainError):
    """Error that is recorded with the file."""

    code = "cancelled"
    status = 409
    message = "The file was deleted before it was published."
