"""The five codes of code assistance (specification, Errors), and how the platform's other errors are spelled there."""

from __future__ import annotations

from assist.rate_headers import DayState
from common.errors import DomainError

KEY, RATE, REQUEST, FAILED, QUOTA = (
    "INVALID_API_KEY",
    "RATE_LIMIT_EXCEEDED",
    "INVALID_REQUEST",
    "GENERATION_FAILED",
    "QUOTA_EXCEEDED",
)
PAYMENT_REQUIRED = 402


class InvalidApiKey(DomainError):
    code = KEY
    status = 401
    message = "The API key is missing or not valid. Send it as `Authorization: Bearer key_...`."


class RateLimitExceeded(DomainError):
    code = RATE
    status = 429
    message = "Too many requests; try again later."


class GenerationFailed(DomainError):
    """Failure to generate. The message never holds anything that a model has said, nor a setting's value."""

    code = FAILED
    status = 502
    message = "The model gave no usable answer."


class DayQuotaExceeded(DomainError):
    code = QUOTA
    status = 429
    message = "The calls of this day are used up; the day ends at 00:00 UTC."

    def __init__(self, day: DayState) -> None:
        self.day = day
        details = {"limit": day.limit, "resets_at": day.ends_at}
        super().__init__(details=details, headers={"Retry-After": str(day.seconds_left)})


def code_of(error: DomainError) -> str:
    """Return the code of an error here: INVALID_REQUEST for a mistake of the caller, GENERATION_FAILED for one of the
    platform.
    """
    if error.code in (KEY, RATE, REQUEST, FAILED, QUOTA):
        return error.code
    if error.status >= 500:
        return FAILED
    return {401: KEY, PAYMENT_REQUIRED: QUOTA, 429: RATE}.get(error.status, REQUEST)


def status_of(error: DomainError) -> int:
    """Return the status of an error: its own, but 502 for an unexpected fault of the platform, as for
    GENERATION_FAILED.
    """
    return GenerationFailed.status if error.status == DomainError.status else error.status
