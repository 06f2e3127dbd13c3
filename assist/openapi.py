"""Description of code assistance in the OpenAPI document: its errors have a form of their own."""

from __future__ import annotations

from datetime import date
from typing import Any

from django.conf import settings
from drf_spectacular.utils import OpenApiResponse
from rest_framework.serializers import Serializer

from assist.error_form import PREFIX, assist_error_body
from assist.errors import (
    FAILED,
    KEY,
    QUOTA,
    RATE,
    REQUEST,
    DayQuotaExceeded,
    GenerationFailed,
    InvalidApiKey,
    RateLimitExceeded,
    code_of,
    status_of,
)
from assist.rate_headers import MINUTE_SECONDS, DayState
from common import errors

ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "details"],
            "properties": {
                "code": {"type": "string", "enum": [KEY, RATE, REQUEST, FAILED, QUOTA]},
                "message": {"type": "string", "description": "Human-readable."},
                "details": {"type": "object", "description": "For a field that is not valid: its messages."},
            },
        }
    },
}
_REFERENCE = {"$ref": "#/components/schemas/AssistError"}
_ERRORS: list[errors.DomainError] = [
    errors.ValidationError(details={"prompt": ["This field is required."]}),
    InvalidApiKey(),
    errors.QuotaExceeded(),
    errors.NamespaceSuspended(),
    errors.NotFound("There is no such route."),
    errors.MethodNotAllowed(),
    errors.PayloadTooLarge(),
    errors.UnsupportedMediaType(),
    RateLimitExceeded(),
    DayQuotaExceeded(DayState(date(2026, 1, 31), 1000, 1000)),
    GenerationFailed(),
    errors.VMUnavailable(),
]
_CODES = {
    400: f"`{REQUEST}`: broken JSON, a missing field, a wrong type, a `webhook_url` that is not allowed",
    401: f"`{KEY}`",
    402: f"`{QUOTA}`: the namespace has no credits left; `details` has its figures",
    403: f"`{REQUEST}`: the namespace of the key is suspended",
    404: f"`{REQUEST}`: no such route",
    405: f"`{REQUEST}`: another method than POST",
    413: f"`{REQUEST}`: a body above 10 MiB, or above the operator's limit",
    415: f"`{REQUEST}`: another Content-Type than application/json",
    429: f"`{RATE}`: too many calls in a minute, wrong keys from one address, or the model has as many questions "
    f"as it can take; `{QUOTA}`: the calls of the day are used up. `Retry-After` says when to try again",
    502: f"`{FAILED}`: the model cannot be reached, took too long, or gave no valid answer twice; the call does not "
    "count",
    503: f"`{FAILED}`: the platform cannot store anything at the moment",
}
_HEADERS = {
    "X-RateLimit-Limit": ("integer", "Calls of the account a day."),
    "X-RateLimit-Remaining": ("integer", "How many are left."),
    "X-RateLimit-Reset": ("integer", "When the day ends, in seconds since the epoch."),
    "RateLimit-Policy": ("string", "The limits of a day and of a minute, in the form of the IETF's draft."),
    "RateLimit": ("string", "The calls that are left within these limits."),
}


def documented_responses(body: type[Serializer[Any]]) -> dict[int, Any]:
    """Return the documented responses of a route: its answer and its errors."""
    errors = {status: OpenApiResponse(_REFERENCE, description=f"{what}.") for status, what in _CODES.items()}
    return {200: body, **errors}


def describe_errors(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Describe the errors and headers of these routes: they answer errors in one form only, and each response has the
    headers. A postprocessing hook.
    """
    result["components"]["schemas"]["AssistError"] = ERROR_SCHEMA
    headers = {name: {"description": text, "schema": {"type": kind}} for name, (kind, text) in _HEADERS.items()}
    for path, operations in result["paths"].items():
        if path.startswith(f"{PREFIX}/"):
            for operation in operations.values():
                _describe(operation, headers)
    return result


def _describe(operation: dict[str, Any], headers: dict[str, Any]) -> None:
    own = {status: found for status, found in operation["responses"].items() if "$ref" not in found}
    for status, response in own.items():
        response.setdefault("headers", {}).update(headers)
        if int(status) >= 400:
            response["content"]["application/json"]["examples"] = _examples(int(status))
    operation["responses"] = own
    rate = {"name": "assist", "requests": settings.ENV.assist_calls_per_minute, "seconds": MINUTE_SECONDS}
    operation["x-limits"]["rates"] = [rate]


def _examples(status: int) -> dict[str, Any]:
    """Return an example, by code, of each error that has this status."""
    found = {code_of(error): {"value": assist_error_body(error)} for error in _ERRORS if status_of(error) == status}
    return dict(sorted(found.items()))
