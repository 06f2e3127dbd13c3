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
    """The message never holds anything that a model has said, nor a setting's value."""

    code = FAILED
    status = 502
    message = "The model gave no answer that can be used."


class DayQuotaExceeded(DomainError):
    code = QUOTA
    status = 429
    message = "The calls of this day are used up; the day ends at 00:00 UTC."

    def __init__(self, day: DayState) -> None:
        self.day = day
        details = {"limit": day.limit, "resets_at": day.ends_at}
        super().__init__(details=details, headers={"Retry-After": str(day.seconds_left)})


def code_of(error: DomainError) -> str:
    """Its code here. Whatever the caller sent wrong is INVALID_REQUEST, and what went wrong here GENERATION_FAILED."""
    if error.code in (KEY, RATE, REQUEST, FAILED, QUOTA):
        return error.code
    if error.status >= 500:
        return FAILED
    return {401: KEY, PAYMENT_REQUIRED: QUOTA, 429: RATE}.get(error.status, REQUEST)


def status_of(error: DomainError) -> int:
    """As the error has it, but 502 for a fault of the platform, which is what GENERATION_FAILED comes with."""
    return GenerationFailed.status if error.status == DomainError.status else error.status
