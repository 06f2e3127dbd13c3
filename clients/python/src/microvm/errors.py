"""Errors of the platform as classes (specification, Errors)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class MicrovmError(Exception):
    """Anything that this package raises."""


class ConnectionFailed(MicrovmError):
    """No answer came, after all repetitions. What was sent may have been done."""


class WaitTimeout(MicrovmError):
    """A wait ended before the workspace was ready; the workspace goes on."""


class TerminalRefused(MicrovmError):
    """The service refuses it over a terminal's socket: `code` as `terminal_not_found`, `command_invalid`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code, self.message = code, message


class ApiError(MicrovmError):
    """An error that the service answered. `retry_after` is in seconds, None where the service named none.

    `after_lost_answer`: an earlier attempt of the same request may have been done.
    """

    def __init__(self, status: int, body: Mapping[str, Any], retry_after: float | None = None) -> None:
        inner = body.get("error")
        source: Mapping[str, Any] = inner if isinstance(inner, Mapping) else body
        self.status = status
        self.code = str(source.get("code") or inner or "")
        self.message = str(source.get("message") or f"The service answered {status}.")
        self.details: Any = source.get("details")
        self.request_id: str | None = body.get("request_id")
        self.retry_after = retry_after
        self.after_lost_answer = False
        super().__init__(f"{self.message} ({self.code or status})")


class InvalidRequest(ApiError):
    """400: the request is malformed; `details` names the fields."""


class Unauthorized(ApiError):
    """401: no valid credential."""


class CreditsOrRoomExhausted(ApiError):
    """402: a quota, a pool or the credits of a namespace are used up."""


class Forbidden(ApiError):
    """403: the credential has the wrong level or scope, or the plan does not allow it."""


class NotFound(ApiError):
    """404: it does not exist, or belongs to another account."""


class Conflict(ApiError):
    """409: the state of the object does not allow it."""


class InvalidState(Conflict):
    """409 `invalid_state`: the state does not allow the move; `details["status"]` has the state."""


class OperationInProgress(Conflict):
    """409 `operation_in_progress`: another operation of this workspace is in flight."""


class RateLimited(ApiError):
    """429: too many requests; `retry_after` says when."""


class ServiceFailed(ApiError):
    """5xx: the service could not do it."""


_BY_CODE: dict[str, type[ApiError]] = {"invalid_state": InvalidState, "operation_in_progress": OperationInProgress}
_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    402: CreditsOrRoomExhausted,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
}


def error_of(status: int, content: bytes, retry_after: float | None = None) -> ApiError:
    """The error for an answer, by its code, else by its status. A body of another form counts as empty."""
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    fields: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    error = ApiError(status, fields)
    fallback = ServiceFailed if status >= 500 else ApiError
    return _BY_CODE.get(error.code, _BY_STATUS.get(status, fallback))(status, fields, retry_after)


def body_of(status: int, content: bytes) -> dict[str, Any]:
    """The object in an answer; an empty one for no content. Raises ApiError for anything else, as a proxy's page."""
    try:
        body = json.loads(content or b"{}")
    except ValueError:
        body = None
    if isinstance(body, dict):
        return body
    raise error_of(status, content)


def retry_after_of(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds; None where it is absent or no number."""
    try:
        return max(0.0, float(headers["Retry-After"]))
    except (KeyError, ValueError):
        return None
