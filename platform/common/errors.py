"""Errors of the API: raised anywhere as exceptions, turned into one body in `common.responses`.

A `DomainError` is caused by the caller's request or concerns the caller; its `code` is the specification's.
The general codes of the wire contract (section 1) each have a class here; resources define their own beside them.
"""

from __future__ import annotations

from typing import Any, ClassVar

# In `details`: what is wrong with no field alone.
WHOLE_BODY = "body"
# Limits of a message that is made of details, whose sentences may repeat what a caller sent.
MAX_SENTENCE, MAX_FIELD_NAME, MAX_FIELDS = 500, 100, 5


class DomainError(Exception):
    """Base of every error that reaches a caller.

    `details` is a JSON object or None; `headers` are added to the response. Never put a secret into any of them.
    """

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500
    message: str = "An internal error occurred."
    # The details of the example in the OpenAPI document, if this error comes with details.
    example_details: ClassVar[dict[str, Any] | None] = None

    def __init__(
        self,
        message: str | None = None,
        *,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.message = message or type(self).message
        self.details = details
        self.headers = headers or {}
        super().__init__(self.message)

    @property
    def name(self) -> str:
        """Return the value of `error` in the body; the same as the code but for authentication errors."""
        return self.code


class FieldError(DomainError):
    """The error that fields are wrong: `details` maps each to a list of sentences. Without a message of its own it has
    the first of them and the fields' names, as many clients show nothing else.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message or _field_message(details or {}), details=details, headers=headers)


def _field_message(details: dict[str, Any]) -> str | None:
    sentence = next((str(texts[0]) for texts in details.values() if isinstance(texts, list) and texts), "")
    names = [name[:MAX_FIELD_NAME] for name in details if name != WHOLE_BODY][:MAX_FIELDS]
    return f"{sentence[:MAX_SENTENCE]} ({', '.join(names)})" if sentence and names else sentence[:MAX_SENTENCE] or None


class ValidationError(FieldError):
    """A documented field has a wrong type or range."""

    code = "validation_error"
    status = 400
    message = "The request is not valid."
    example_details: ClassVar[dict[str, Any] | None] = {"name": ["This field is required."]}


class InvalidJson(DomainError):
    code = "invalid_json"
    status = 400
    message = "The body is not valid JSON."


class BodyEndedEarly(InvalidJson):
    """The connection ended before the body did; nothing was done (wire contract, section 1)."""

    message = "The body ended early: it has fewer bytes than Content-Length says, or no last chunk. Send it again."


class NotFound(DomainError):
    code = "not_found"
    status = 404
    message = "There is no such resource."


class MethodNotAllowed(DomainError):
    code = "method_not_allowed"
    status = 405
    message = "This method is not available here."


class InvalidState(DomainError):
    """The resource's state does not allow this. `details.status` is that state."""

    code = "invalid_state"
    status = 409
    message = "The resource is not in a state in which this is possible."
    example_details: ClassVar[dict[str, Any] | None] = {"status": "stopped"}


class Conflict(DomainError):
    code = "conflict"
    status = 409
    message = "The request conflicts with the resource as it is."


class PayloadTooLarge(DomainError):
    code = "payload_too_large"
    status = 413
    message = "The body is larger than this route accepts."


class UnsupportedMediaType(DomainError):
    code = "unsupported_media_type"
    status = 415
    message = "Send the body as application/json."


class RateLimited(DomainError):
    code = "rate_limited"
    status = 429
    message = "Too many requests; try again later."


class QuotaExceeded(DomainError):
    code = "quota_exceeded"
    status = 402
    message = "The quota of the namespace is used up."
    example_details: ClassVar[dict[str, Any] | None] = {
        "namespace": "default",
        "service": "deployment",
        "quota_used": 9,
        "held": 1,
        "quota_limit": 10,
        "overdraft": 0,
    }


class NamespaceSuspended(DomainError):
    code = "namespace_suspended"
    status = 403
    message = "The namespace is suspended."


class VMUnavailable(DomainError):
    """The virtual machine backend does not answer or has no capacity (specification, section Errors)."""

    code = "VM_UNAVAILABLE"
    status = 503
    message = "The virtual machine backend cannot be reached; try again later."


class DatabaseUnavailable(VMUnavailable):
    """The platform's own database cannot be written or reached, as when its disk is full."""

    message = "The platform cannot store anything at the moment (its disk may be full); try again later."

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message, headers={"Retry-After": "5"})


class Unauthorized(DomainError):
    code = "unauthorized"
    status = 401
    message = "Missing or invalid credentials."

    @property
    def name(self) -> str:
        return "Unauthorized"


class Forbidden(DomainError):
    code = "forbidden"
    status = 403
    message = "These credentials do not allow this."

    @property
    def name(self) -> str:
        return "Forbidden"
